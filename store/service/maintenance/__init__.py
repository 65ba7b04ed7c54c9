"""What takes away, looks after and checks, in an open store."""
