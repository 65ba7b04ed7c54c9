"""The rollback of a migration, at any stage, and its final end."""
