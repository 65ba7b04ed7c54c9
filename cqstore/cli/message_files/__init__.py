"""Messages in files: JSON lines, CSV, Parquet, Arrow, archives."""
