"""Moving queues between backends, and proving them equal."""
