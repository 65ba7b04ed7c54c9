"""What was measured: as models, and as a file. Nothing that follows from it."""
