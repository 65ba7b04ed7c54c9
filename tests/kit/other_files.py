"""A backend of our own, ``other``, that only an entry point makes known: queue files elsewhere."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from cqstore.cq_file.bulk import FileBulk
from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import UnitSource
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.settings.config import StoreConfig
from tests.kit.installing import install_distribution

FOLDER = "otherqueue"


class _OwnFolder(StorePaths):
    @property
    def consume_queue(self) -> Path:
        return self.root / FOLDER

    @property
    def own(self) -> Path:
        """Return where the ends of its queues are written down, apart from those of files."""
        return self.root / "cqstore" / "other"


def _paths(paths: StorePaths) -> StorePaths:
    return _OwnFolder(paths.root, paths.commit_log)


class OtherFiles(FileConsumeQueueStore):
    """Queue files in a folder of their own, else as ever."""

    name = "other"
    store_types = ()
    counts_in_checkpoint = False  # those fields are of RocketMQ's own files

    def __init__(self, context: QueueStoreContext) -> None:
        super().__init__(replace(context, paths=_paths(context.paths)))

    @classmethod
    def present(cls, paths: StorePaths) -> bool:
        return super().present(_paths(paths))

    @classmethod
    def folders(cls, paths: StorePaths) -> list[Path]:
        return [_paths(paths).consume_queue]

    @classmethod
    def own_files(cls, paths: StorePaths) -> list[Path]:
        return super().own_files(_paths(paths))


class OtherBulk(FileBulk):
    """Whole queues of ``OtherFiles``."""

    name: ClassVar[str] = "other"

    def source(self, context: QueueStoreContext) -> UnitSource:
        return super().source(replace(context, paths=_paths(context.paths)))

    def assemble(
        self, parts: Sequence[Path], paths: StorePaths, config: StoreConfig, phy_offset: int
    ) -> None:
        super().assemble(parts, _paths(paths), config, phy_offset)

    def publish(self, made: StorePaths, paths: StorePaths, config: StoreConfig) -> None:
        super().publish(_paths(made), _paths(paths), config)

    def withdraw(self, paths: StorePaths, folder: Path, prefix: str = "") -> None:
        super().withdraw(_paths(paths), folder, prefix)


def install(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    kinds: Sequence[type[FileConsumeQueueStore]] = (OtherFiles,),
) -> None:
    """Make the backends known to this process and to those that it starts."""
    points = {
        "cqstore.backends": {kind.name: f"{kind.__module__}:{kind.__name__}" for kind in kinds},
        "cqstore.bulk": {OtherBulk.name: f"{OtherBulk.__module__}:{OtherBulk.__name__}"},
    }
    install_distribution(folder, monkeypatch, "cqstore-other", points)
