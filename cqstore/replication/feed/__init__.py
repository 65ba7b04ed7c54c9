"""Feeding followers: serves the log of a store as a RocketMQ master does."""
