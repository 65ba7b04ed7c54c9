"""Opening a store: its components, made one upon the other."""
