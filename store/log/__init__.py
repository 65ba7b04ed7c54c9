"""The commit log: mapped files in a row, appended at one end, and the store checkpoint."""

import cqstore.store.core  # noqa: F401 - says in a sentence which compiled module lacks
