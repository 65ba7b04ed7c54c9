"""Following a master: its log, proven and appended."""
