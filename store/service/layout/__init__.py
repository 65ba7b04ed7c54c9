"""Detection of the content of a folder; nothing is changed."""
