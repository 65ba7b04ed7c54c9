"""Records: layouts, messages, and the conversion between messages and bytes. No file access."""

import cqstore.store.core  # noqa: F401 - says in a sentence which compiled module lacks
