"""Two logs held against each other: what is the same, where they part, and ending that."""
