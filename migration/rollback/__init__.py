"""The way back from a migration, however far it is, and its end for good."""
