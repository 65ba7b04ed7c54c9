"""The compiled core: it completes the plain case of a call, or hands it back unchanged.

Input that it does not accept is irregular or invalid, and is handled in Python, which has the error
messages.

A compiled module is in the package to which it belongs. This package has the shared modules.
"""

import os

BUS_HANDLER = "CQSTORE_BUS_HANDLER"
"""``1``: this process, and its children, handle bus errors in maps, see below."""

try:
    from cqstore.store.core import _faults
except ImportError as missing:
    raise ImportError(
        "the compiled core of cqstore is missing: install a wheel, or the source archive where a C"
        f" compiler is ({missing})"
    ) from missing


def handle_bus_errors() -> None:
    """Make the next map of this process install a handler of ``SIGBUS``, until it ends.

    Then a file that is truncated under its map, or a page that cannot be read, is an error, and
    does not end the process. The program decides how a process handles signals: it sets
    ``handle_bus_errors`` in ``StoreConfig``; the ``cqstore`` command does so itself.
    """
    _faults.allow_bus_handler()


if os.environ.get(BUS_HANDLER) == "1":
    handle_bus_errors()
