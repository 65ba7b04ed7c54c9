"""The commit log: mapped files in a row, appended at one end, and the store checkpoint."""
