"""The verbs of a store, one module each: ``cqstore info`` is ``info.py``."""
