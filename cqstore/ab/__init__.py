"""A/B comparison: which backend serves a store better, measured on the store's own data.

Offline, the same operations run on copies of one store, each *side* in its own process. Live, a
store with double write repeats a share of its reads on its other backend. Answers are compared
before figures: if the answers of two sides differ, no figure is judged.
"""
