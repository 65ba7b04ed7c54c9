"""Settings of a store, and the reader of a ``broker.conf``."""
