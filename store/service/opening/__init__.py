"""Opening a store: its parts, made one upon the other."""
