"""Feeding followers: the log of a store, served as a master serves it."""
