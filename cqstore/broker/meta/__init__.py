"""``cqstore meta``: show, check, convert and repair a broker's metadata."""
