"""RolledFileSync: syncs a full index file in a thread, so that a roll need not wait for it."""

from cqstore.store.concurrency.thread import StoreThread
from cqstore.store.errors import StoreFailedError
from cqstore.store.index.index_file import IndexFile
from cqstore.store.sentences import REOPEN


class RolledFileSync:
    """The sync of one full file. The thread that rolled starts it, and waits for it."""

    def __init__(self, file: IndexFile) -> None:
        """Prepare a thread that syncs ``file`` once ``start`` is called."""
        self._file = file
        self._is_synced = False
        self._fault: BaseException | None = None
        self._thread = StoreThread("cqstore-index-flush", self._run)

    def start(self) -> None:
        """Start the sync in its own thread."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self._file.sync()
            self._is_synced = True
        except BaseException as exc:  # noqa: BLE001 - whatever it was, the file is not on disk
            self._fault = exc

    def end(self) -> None:
        """Wait for the thread, whether or not the sync succeeds."""
        self._thread.join()

    def wait(self) -> IndexFile:
        """Wait for the end of the sync; return the file, which is on disk.

        Raises:
            StoreFailedError: the file could not be synced.
        """
        self._thread.join()
        if not self._is_synced:  # also if the start of the thread was interrupted
            raise StoreFailedError(
                f"an earlier flush of the index file failed: {self._fault!r}. {REOPEN}",
                path=self._file.path,
            ) from self._fault
        return self._file
