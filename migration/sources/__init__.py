"""The name that ``cqstore sql`` had before it moved to ``analysis``."""
