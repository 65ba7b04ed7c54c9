"""The message store: put, get, dispatch, recovery, locks, checks."""

import cqstore.store.core  # noqa: F401 - says in a sentence which compiled module lacks
