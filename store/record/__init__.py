"""Records: layouts, messages, and the bytes between the two. Knows no files."""

import store.core  # noqa: F401 - says in a sentence that a compiled module of this room is missing
