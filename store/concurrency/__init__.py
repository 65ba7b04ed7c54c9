"""Threads, locks, futures and processes that survive interrupts."""
