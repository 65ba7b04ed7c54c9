"""SideStore: one side's store in its own process: build, open, measure."""

import shutil
import time
from collections import Counter
from pathlib import Path

from cqstore.ab.measuring import measures
from cqstore.ab.results.result import Footprint
from cqstore.store.errors import StoreError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend as backend_class
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions, StoreHooks
from cqstore.store.settings.config import StoreConfig


class SideStore:
    """The store of one side in ``root``; one thread.

    ``scratch`` is a folder for temporary stores; the caller that makes one removes it.
    """

    def __init__(
        self, root: Path, backend: str, config: StoreConfig, *, housekeeping: bool = False
    ) -> None:
        """``housekeeping``: expire log files and deliver delayed messages, as a server does."""
        self.root = root
        self.backend = backend
        self.config = config
        self.scratch = root.with_name(f"{root.name}.scratch")
        self._housekeeping = housekeeping
        self._store: MessageStore | None = None
        self._written: Counter[str] = Counter()

    @property
    def store(self) -> MessageStore:
        """Return the open store.

        Raises:
            StoreError: it is not open.
        """
        if self._store is None:
            raise StoreError("the side's store is not open", path=self.root)
        return self._store

    @property
    def is_open(self) -> bool:
        """Return whether the side's store is open."""
        return self._store is not None

    def open_at(self, root: Path) -> MessageStore:
        """Open a store of this side's kind in ``root``; the caller closes it."""
        hooks = StoreHooks(installed=False)
        options = OpenOptions(backend=self.backend, housekeeping=self._housekeeping, hooks=hooks)
        return open_served(MessageStore, root, self.config, options)

    def open(self) -> float:
        """Open the side's own store if it is closed; return the seconds that this took."""
        if self._store is not None:
            return 0.0
        began = time.perf_counter()
        self._store = self.open_at(self.root)
        return time.perf_counter() - began

    def close(self) -> None:
        """Close the side's store, if it is open."""
        store, self._store = self._store, None
        if store is not None:
            self.count_written(store)
            store.close()

    def count_written(self, store: MessageStore) -> None:
        """Add the bytes that the backend of ``store`` wrote; call it before the store is closed."""
        self._written.update(components_of(store).queues.written_bytes())

    def written(self) -> Counter[str]:
        """Return the bytes that the backends of this process's stores counted as written, by cause.

        Includes closed stores and the side's own store. The counts never decrease.
        """
        found = self._written.copy()
        if self._store is not None:
            found.update(components_of(self._store).queues.written_bytes())
        return found

    def build(self) -> tuple[float, int]:
        """Build the queues from the log; return seconds and dispatched units."""
        began = time.perf_counter()
        with self.open_at(self.root) as store:
            store.flush()
            seconds = time.perf_counter() - began
            return seconds, store.report.dispatched_units

    def drop_cache(self) -> None:
        """Drop the side's files from the page cache, closing and opening its store for that."""
        opened = self.is_open
        self.close()
        for folder in (self.root, self.scratch):
            measures.drop_from_cache(folder)
        if opened:
            self.open()

    def own_files(self) -> list[Path]:
        """Return the files and folders of the queues."""
        return backend_class(self.backend).own_files(StorePaths(self.root))

    def disk_bytes(self) -> int:
        """Return the bytes that are allocated on disk for the queues."""
        return measures.disk_use(self.own_files())[0]

    def footprint(self) -> Footprint:
        """Open the store again and return the resources of its queues."""
        self.close()
        seconds = self.open()
        disk, files = measures.disk_use(self.own_files())
        return Footprint(
            disk_bytes=disk, files=files, maps=measures.maps(),
            descriptors=measures.descriptors(), pss_bytes=measures.pss_bytes(),
            open_seconds=seconds,
        )  # fmt: skip

    def remove_scratch(self) -> None:
        """Remove the temporary stores."""
        shutil.rmtree(self.scratch, ignore_errors=True)
