"""The state of a running store, its threads and its environment."""
