"""What compiled code is compared with: the same in Python."""
