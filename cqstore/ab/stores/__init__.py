"""The stores of a comparison: survey and copies of the original, and the sides' own stores."""
