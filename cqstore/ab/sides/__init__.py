"""Sides: as asked for, built and proved equal, each in a process of its own."""
