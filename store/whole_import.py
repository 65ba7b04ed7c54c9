"""Imports that no signal handler interrupts.

An exception in the middle of an import discards the module, and the next import executes it again.
Extension modules do not survive that: numpy refuses a second load in one process, and rocksdict
fails with a ``NameError``. A handler runs only in the main thread, so another thread imports.
"""

import sys
import threading
from _thread import allocate_lock, start_new_thread
from importlib import import_module
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

_SECONDS = 1.0
"""Interval at which the waiting thread checks again; after an interrupt it waits no longer."""


def import_whole(name: str) -> ModuleType:
    """Return the module ``name``; if it has to be imported, an interrupt waits until it is.

    Any thread. An exception that a handler raises in the meantime is raised after the import.

    Raises:
        ImportError: the module does not exist, or cannot be loaded.
    """
    if name not in sys.modules and threading.current_thread() is threading.main_thread():
        _import_in_thread(name)
    return import_module(name)


def load_whole(entry: EntryPoint) -> Any:
    """Return the object that an entry point names, imported as by ``import_whole``."""
    import_whole(entry.module)
    return entry.load()


def _import_in_thread(name: str) -> None:
    """Import ``name`` in a separate thread, and wait for its end.

    The import that follows raises the error, also if the process may not start a thread.
    """
    is_over = allocate_lock()
    is_over.acquire()

    def run() -> None:
        try:
            import_module(name)
        except Exception:  # noqa: BLE001 - the caller imports it again, and gets the error
            return
        finally:
            is_over.release()

    try:
        start_new_thread(run, ())
        while not is_over.acquire(timeout=_SECONDS):
            pass
    except RuntimeError:
        return
    except BaseException:
        is_over.acquire(timeout=_SECONDS)  # it may not have been started
        raise
