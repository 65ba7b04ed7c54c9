"""The hash index: from a message key to the records that carry it."""
