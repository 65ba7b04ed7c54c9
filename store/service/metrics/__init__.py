"""What a store reports of itself."""
