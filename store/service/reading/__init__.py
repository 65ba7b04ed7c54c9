"""Pulls."""
