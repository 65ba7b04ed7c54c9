"""The compiled core: it does the plain case of a call wholly, or hands it back untouched.

Input that it does not take is irregular, or refused: that is done in Python, which has the texts.

A compiled module lies in the room that it belongs to. Here is what all rooms share.
"""

import os

BUS_HANDLER = "CQSTORE_BUS_HANDLER"
"""``1``: this process, and those that it starts, answer bus errors in maps, see below."""

try:
    from cqstore.store.core import _faults
except ImportError as missing:
    raise ImportError(
        "the compiled core of cqstore is missing: install a wheel, or the source archive where a C"
        f" compiler is ({missing})"
    ) from missing


def handle_bus_errors() -> None:
    """Have the next map of this process install a handler of ``SIGBUS``, until it ends.

    A file that is cut under its map, or a page that the disk cannot give, is an error then, and
    does not end the process. How a process handles signals is decided by its program: that
    sets ``handle_bus_errors`` in ``StoreConfig``, and ``cqstore`` asks for itself.
    """
    _faults.allow_bus_handler()


if os.environ.get(BUS_HANDLER) == "1":
    handle_bus_errors()
