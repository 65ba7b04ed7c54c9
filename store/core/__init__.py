"""The compiled core: it does the plain case of a call wholly, or hands it back untouched.

What it hands back is odd, or refused: that is done in Python, which has the sentences.
"""

import os
from typing import Final

BUS_HANDLER = "CQSTORE_BUS_HANDLER"
"""``1``: this process, and those that it starts, answer bus errors in maps, see below."""

try:
    from store.core import _core, _reads
except ImportError as missing:
    raise ImportError(
        "the compiled core of cqstore is missing: install a wheel, or the source archive where a C"
        f" compiler is ({missing})"
    ) from missing

CORE: Final = _core
"""The compiled module."""
READS: Final = _reads
"""Its reading side."""


def handle_bus_errors() -> None:
    """Have the next map of this process install a handler of ``SIGBUS``, for good.

    A file that is cut under its map, or a page that the disk cannot give, is an error then, and
    does not end the process. How a process handles signals is decided by whoever owns it: a
    program sets ``handle_bus_errors`` in ``StoreConfig``, and ``cqstore`` asks for itself.
    """
    READS.allow_bus_handler()


if os.environ.get(BUS_HANDLER) == "1":
    handle_bus_errors()
