"""QueueBackend: what a kind of queues reports of folders that are not opened."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from cqstore.store.paths import StorePaths
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import QueueStat
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.installed_backends import Backend


class QueueBackend(Backend, ABC):
    """One kind of queues. Nothing is opened here, no lock is taken, no byte changed."""

    counts_in_checkpoint: bool = False
    """The store checkpoint's ``logics`` fields speak of this backend, as of RocketMQ's files."""
    hides_unflushed: bool = False
    """A reader that opens the queues beside their writer sees what has been flushed, no more."""
    lmq_needs_multi_dispatch: bool = False
    """Light queues need ``enableMultiDispatch`` beside ``enableLmq``, as in RocketMQ."""
    begins_with_blanks: ClassVar[bool] = False
    """Before a queue's first unit there may be units that are none, in its first file."""
    fills_holes: ClassVar[bool] = False
    """A replay brings back units that are missing before others of their queue."""

    @classmethod
    @abstractmethod
    def present(cls, paths: StorePaths) -> bool:
        """Return whether ``paths`` holds queues of this backend. Changes nothing.

        Raises:
            RefusedStoreError: it does, twice or in a way that leaves two readings.
        """

    @classmethod
    def check_settings(cls, config: StoreConfig) -> None:
        """Refuse settings that queues could not be opened with. Touches no file.

        Raises:
            StoreConfigError, UnsupportedFormatError: the sentence names the setting.
        """
        _ = config

    @classmethod
    def folders(cls, paths: StorePaths) -> list[Path]:
        """Return the folders that its queues may lie in; others' may lie there too."""
        return [paths.consume_queue]

    @classmethod
    def folders_by_queue(cls, paths: StorePaths) -> list[Path]:
        """Return the folders that have one, ``TOPIC/QUEUEID``, for each queue, if there are any."""
        _ = paths
        return []

    @classmethod
    def unlike_others(cls, paths: StorePaths) -> Path | None:
        """Return the folder of queues that are there and that no other backend could hold."""
        _ = paths
        return None

    @classmethod
    def own_files(cls, paths: StorePaths) -> list[Path]:
        """Return the files and folders that make up this backend's queues, no others'.

        Moved away together they leave a store without queues of this backend.
        """
        _ = paths
        return []

    @classmethod
    def dump_file(cls, path: Path) -> Iterator[dict[str, object]] | None:
        """Return the rows of one bare file, ``None`` if it is no file of this backend's.

        The folders around it say what it is.
        """
        _ = path
        return None

    @classmethod
    def watch(cls, paths: StorePaths) -> Sequence[QueueStat]:
        """Return what files alone show of queues that another process has open.

        Opens no database, takes no lock, changes nothing.
        """
        _ = paths
        return ()

    @classmethod
    def written_to(cls, context: QueueStoreContext) -> int:
        """Return up to which phy offset records have surely been dispatched to these queues.

        For queues that are not opened; a cheap check that changes nothing. 0 if it is unknown.
        """
        _ = context
        return 0
