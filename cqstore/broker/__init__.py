"""A broker's metadata (topics, groups, offsets) and the reports on it."""
