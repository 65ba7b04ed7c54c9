"""A broker's metadata: topics, subscription groups and consumer offsets, in all forms."""
