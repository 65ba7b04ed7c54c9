"""The consume-queue interface: units in batches and blocks, search, and backends by name."""

import cqstore.store.core  # noqa: F401 - says in a sentence which compiled module lacks
