"""A broker's metadata (topics, groups, offsets) and what an operator reads from it."""
