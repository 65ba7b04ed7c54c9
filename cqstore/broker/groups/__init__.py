"""``cqstore groups``: lag of consumer groups, and changes to their offsets."""
