"""Delayed delivery: the schedule's queues, and the progress of each level."""
