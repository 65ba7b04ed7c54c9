"""The hash index, which maps a message key to the records with that key."""

import cqstore.store.core  # noqa: F401 - says in a sentence which compiled module lacks
