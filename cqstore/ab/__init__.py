"""A/B: which backend serves a store better, on its own data, and whether a user would notice.

Offline the same operations run against copies of one store, each *side* in a process of its own;
live the combined store asks its other backend again what it has answered. Answers come before
figures: sides that answer differently are not compared any further.
"""
