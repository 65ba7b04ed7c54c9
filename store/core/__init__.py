"""The compiled core: it does the plain case of a call wholly, or hands it back untouched.

Input that it does not take is irregular, or refused: that is done in Python, which has the texts.

A compiled module lies in the room that it belongs to. Here is what all rooms share.
"""

import os
from importlib import import_module
from typing import Final

BUS_HANDLER = "CQSTORE_BUS_HANDLER"
"""``1``: this process, and those that it starts, answer bus errors in maps, see below."""
COMPILED: Final = (
    "store.core._buffer", "store.core._column", "store.core._faults", "store.core._maps",
    "store.index._batch", "store.index._chain", "store.index._writer", "store.log._log",
    "store.log._pages", "store.log._tail", "store.queue._batch", "store.queue._estimate",
    "store.record._encode", "store.record._known", "store.record._message",
    "store.record._properties", "store.record._scan", "store.record._scratch",
    "store.record._stored", "store.service._results", "store.service.dispatching._columns",
    "store.service.dispatching._replay", "store.service.dispatching._waiting",
    "store.service.reading._pull", "store.service.reading._query", "store.service.reading._ready",
    "store.service.runtime._flags", "store.service.runtime._histogram",
    "store.service.writing._encoded", "store.service.writing._put",
)  # fmt: skip
"""The store's compiled modules, but for those that import modules of Python.

All are there or none is: so one that lacks is met here, and not by the first call that needs it.
"""

try:
    for _name in COMPILED:
        import_module(_name)
    from store.core import _faults
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
