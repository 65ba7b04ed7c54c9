"""Settings of a store, and reading them from a ``broker.conf``."""
