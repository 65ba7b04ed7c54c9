"""QueueBackend: the facts about a type of backend that need no open store."""

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
    """One type of backend. Opens nothing, takes no lock, changes no byte."""

    counts_in_checkpoint: bool = False
    """The ``logics`` fields of the store checkpoint describe this backend, as in RocketMQ."""
    hides_unflushed: bool = False
    """A reader that opens the queues during writes sees only flushed data."""
    lmq_needs_multi_dispatch: bool = False
    """Light queues need ``enableMultiDispatch`` in addition to ``enableLmq``, as in RocketMQ."""
    begins_with_blanks: ClassVar[bool] = False
    """The first file of a queue may begin with blank units before its first unit."""
    fills_holes: ClassVar[bool] = False
    """A replay restores units that are missing before other units of their queue."""

    @classmethod
    @abstractmethod
    def present(cls, paths: StorePaths) -> bool:
        """Return whether ``paths`` contains queues of this backend. Changes nothing.

        Raises:
            RefusedStoreError: it contains them twice, or it is ambiguous which are valid.
        """

    @classmethod
    def check_settings(cls, config: StoreConfig) -> None:
        """Refuse settings with which queues cannot be opened. Accesses no file.

        Raises:
            StoreConfigError, UnsupportedFormatError: the error names the setting.
        """
        _ = config

    @classmethod
    def folders(cls, paths: StorePaths) -> list[Path]:
        """Return the folders that may contain its queues; other backends may use them too."""
        return [paths.consume_queue]

    @classmethod
    def folders_by_queue(cls, paths: StorePaths) -> list[Path]:
        """Return the folders with a subfolder ``TOPIC/QUEUEID`` per queue, if there are any."""
        _ = paths
        return []

    @classmethod
    def unlike_others(cls, paths: StorePaths) -> Path | None:
        """Return the folder of existing queues that no other backend supports."""
        _ = paths
        return None

    @classmethod
    def own_files(cls, paths: StorePaths) -> list[Path]:
        """Return the files and folders with this backend's queues, and no others.

        A store from which they are moved away has no queues of this backend.
        """
        _ = paths
        return []

    @classmethod
    def copy_open(cls, folder: Path, target: Path) -> bool:
        """Copy its queues in ``folder``, which a process may be writing, into ``target``.

        Returns whether it did: by default the caller copies the files one by one. They must then be
        usable together, or a start must find what they lack.

        Raises:
            StoreError: they cannot be copied.
        """
        _ = folder, target
        return False

    @classmethod
    def dump_file(cls, path: Path) -> Iterator[dict[str, object]] | None:
        """Return the rows of one bare file, ``None`` if it is not a file of this backend.

        The folders around it determine its type.
        """
        _ = path
        return None

    @classmethod
    def watch(cls, paths: StorePaths) -> Sequence[QueueStat]:
        """Return metrics from the files alone, for queues that another process has open.

        Opens no database, takes no lock, changes nothing.
        """
        _ = paths
        return ()

    @classmethod
    def written_to(cls, context: QueueStoreContext) -> int:
        """Return the phy offset up to which records were certainly dispatched to these queues.

        For queues that are not open; a cheap check that changes nothing. 0 if unknown.
        """
        _ = context
        return 0
