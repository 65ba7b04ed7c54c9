"""What follows from a result: verdicts, with how sure they are.

Nothing is measured here. ``judge`` gives the same judgement of the same result, whenever and
wherever it is asked.
"""
