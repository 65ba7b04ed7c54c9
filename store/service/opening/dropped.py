"""A store that is dropped without ``close``: it is closed all the same, in a thread of its own.

Its threads would go on otherwise, and hold files and databases until the process ends.
"""

import _thread
import weakref
from contextlib import suppress
from pathlib import Path

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import StoreError
from cqstore.store.service.opening.shutdown import StoreShutdown
from cqstore.store.service.runtime.running_state import RunningState

_LOG = StoreLogger(__name__)


def close_when_dropped(
    store: object, shutdown: StoreShutdown, state: RunningState, root: Path
) -> None:
    """Have ``shutdown`` run soon after ``store`` was collected, unless it was closed before.

    At the end of the process nothing is done: the next open recovers, as after a kill.
    """
    weakref.finalize(store, _dropped, shutdown, state, root).atexit = False


def _dropped(shutdown: StoreShutdown, state: RunningState, root: Path) -> None:
    """Start the close. The collector calls this inside of any code: it waits for no lock."""
    if not (state.forked or shutdown.is_done):
        with suppress(RuntimeError):  # no threads any more: the process ends
            _thread.start_new_thread(_close, (shutdown, root))


def _close(shutdown: StoreShutdown, root: Path) -> None:
    _LOG.warning("%s was dropped without close(): it is closed now", root)
    try:
        shutdown.run()
    except StoreError as exc:
        _LOG.error("%s was dropped, and its close failed: %s", root, exc)
