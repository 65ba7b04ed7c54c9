"""Records: layouts, messages, and the bytes between the two. Knows no files."""
