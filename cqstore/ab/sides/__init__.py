"""Sides: parsed, built and proved equal, each in its own process."""
