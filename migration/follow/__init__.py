"""The move without a window: a running broker is followed, and its follower takes its place."""
