"""Opening a store: its components, each created from the previous ones."""
