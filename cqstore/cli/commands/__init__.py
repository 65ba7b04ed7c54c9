"""The verbs for a store, one module per verb: ``cqstore info`` is in ``info.py``."""
