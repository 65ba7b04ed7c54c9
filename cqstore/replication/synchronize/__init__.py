"""What a master has beside its log: topics, groups and offsets, asked of its broker."""
