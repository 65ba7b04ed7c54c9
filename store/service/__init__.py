"""The message store: put, get, dispatch, recovery, locks, checks."""

import store.core  # noqa: F401 - says in a sentence that a compiled module of this room is missing
