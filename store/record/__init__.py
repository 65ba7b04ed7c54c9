"""Records: layouts, messages, and the bytes between the two. Knows no files."""

import cqstore.store.core  # noqa: F401 - says in a sentence which compiled module lacks
