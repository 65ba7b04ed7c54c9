"""Move the store of a running broker: follow it, then replace it with the follower."""
