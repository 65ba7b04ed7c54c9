"""Tools for a store that is not open."""
