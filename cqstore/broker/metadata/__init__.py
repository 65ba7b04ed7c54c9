"""A broker's metadata: topics, subscription groups and consumer offsets, in every form it keeps."""
