"""Writing down what is asked of a store."""
