"""FileBackend: facts about queue files that need no open store."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from cqstore.cq_file.dump import rows_of_file
from cqstore.cq_file.known_ends import ends_path
from cqstore.cq_file.layout import batch_folder, ext_folder
from cqstore.cq_file.listing import has_queue_files, queue_folders
from cqstore.store.path_kind import exists, is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.queue_backend import QueueBackend


class FileBackend(QueueBackend):
    """Queues in files of 20-byte units."""

    name = "file"
    store_types: ClassVar[tuple[str, ...]] = ("default", "file")
    honours_double_write = True
    begins_with_blanks = True
    lmq_needs_multi_dispatch = True
    counts_in_checkpoint = True

    @classmethod
    def present(cls, paths: StorePaths) -> bool:
        """Return whether there is a folder of a simple or batch queue with a file in it."""
        return has_queue_files(paths.consume_queue) or has_queue_files(batch_folder(paths))

    @classmethod
    def folders(cls, paths: StorePaths) -> list[Path]:
        """Return the folders of queues, batch queues and extension files."""
        return [paths.consume_queue, batch_folder(paths), ext_folder(paths)]

    @classmethod
    def folders_by_queue(cls, paths: StorePaths) -> list[Path]:
        """Return the folders that contain one folder per queue: units, and extension units."""
        return [paths.consume_queue, ext_folder(paths)]

    @classmethod
    def unlike_others(cls, paths: StorePaths) -> Path | None:
        """Return the folder of the batch queues if there are any."""
        folder = batch_folder(paths)
        return folder if is_dir(folder) and any(folder.iterdir()) else None

    @classmethod
    def own_files(cls, paths: StorePaths) -> list[Path]:
        """Return the topics' folders, the batch queues, and the file with saved ends of queues.

        The folders of BatchCQ topics are not among them: they show the type of the topic.
        """
        folder = paths.consume_queue
        found = [path for path in folder.iterdir() if is_dir(path)] if is_dir(folder) else []
        found += [Path(queue.path) for queue in queue_folders(batch_folder(paths))]
        return [path for path in (*found, ends_path(paths)) if exists(path)]

    @classmethod
    def dump_file(cls, path: Path) -> Iterator[dict[str, object]] | None:
        """Return the units of a queue, batch queue or extension file."""
        return rows_of_file(path)

    @classmethod
    def written_to(cls, context: QueueStoreContext) -> int:
        """Return the phy offset of the checkpoint, which RocketMQ writes only for file queues."""
        return context.checkpoint.logics_phy_offset
