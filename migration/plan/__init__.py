"""Plans of migrations: the units to move, in segments, and the identity of their store."""
