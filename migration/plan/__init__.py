"""Planning: which units are to be moved, cut into segments, and of which store."""
