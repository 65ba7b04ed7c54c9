"""The judgement of a result: verdicts with their confidence.

Nothing is measured here. ``judge`` always returns the same judgement for the same result.
"""
