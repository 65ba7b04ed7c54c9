"""Finding out what a folder holds; nothing is changed."""
