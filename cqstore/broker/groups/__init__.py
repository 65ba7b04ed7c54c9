"""``cqstore groups``: lag of consumer groups, and changes of their offsets."""
