"""What is done to a store that nobody has open."""
