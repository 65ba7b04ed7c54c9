"""The hash index: from a message key to the records that carry it."""

import cqstore.store.core  # noqa: F401 - says in a sentence which compiled module lacks
