"""The stores of a comparison: the original looked at, shared and copied; a side's own opened."""
