"""Following a master: verifies that its log continues the local log, and appends it."""
