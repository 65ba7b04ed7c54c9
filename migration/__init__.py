"""Moving queues between backends and proving them equal. Nothing is here yet."""
