"""The commit log: consecutive mapped files, appended at the end, and the store checkpoint."""

import cqstore.store.core  # noqa: F401 - says in a sentence which compiled module lacks
