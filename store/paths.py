"""The names of all files and folders of a store, except for those of a single backend."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cqstore.store.broker_files.file_names import CONFIG_FOLDER, DELAYS_FILE, TOPICS_FILE, backup_of
from cqstore.store.errors import RefusedStoreError


def named_path(path: Path | str) -> Path:
    """Return ``path``; every public function that takes one as text calls this.

    ``Path("")`` is the current folder, and a caller's unset variable must never mean that folder.
    (A ``Path`` from an empty text is equal to ``Path(".")``, and is accepted.)

    Raises:
        RefusedStoreError: ``path`` is an empty text.
    """
    if path == "":
        raise RefusedStoreError("the path is empty: give a path, or . for the current folder")
    return Path(path)


def beside(root: Path, suffix: str) -> Path:
    """Return the path next to a folder with its name and ``suffix``, also for ``.``."""
    named = root.resolve() if root.name in {"", ".."} else root
    return named.with_name(f"{named.name}{suffix}")


@dataclass(frozen=True)
class StorePaths:
    """Names below ``root`` (RocketMQ's ``storePathRootDir``).

    ``commit_log`` may be elsewhere (``storePathCommitLog``). ``own`` is the only folder that
    RocketMQ does not use: it contains cut tails.
    """

    root: Path
    commit_log_override: Path | None = None

    @cached_property
    def commit_log(self) -> Path:
        """Return the folder of the commit log files."""
        return self.commit_log_override or self.root / "commitlog"

    @cached_property
    def consume_queue(self) -> Path:
        """Return the folder of the queues; a backend may have others next to it."""
        return self.root / "consumequeue"

    @cached_property
    def index(self) -> Path:
        """Return the folder of the hash index files."""
        return self.root / "index"

    @cached_property
    def checkpoint(self) -> Path:
        """Return the store checkpoint, 4096 bytes."""
        return self.root / "checkpoint"

    @cached_property
    def abort(self) -> Path:
        """Return the marker that exists while a store is open or after a crash."""
        return self.root / "abort"

    @cached_property
    def abort_backup(self) -> Path:
        """Return the copy of the previous ``abort``, rewritten at every start."""
        return backup_of(self.abort)

    @cached_property
    def lock(self) -> Path:
        """Return the file whose first byte the opener locks."""
        return self.root / "lock"

    @cached_property
    def config(self) -> Path:
        """Return the folder of the broker's tables."""
        return self.root / CONFIG_FOLDER

    @cached_property
    def topics(self) -> Path:
        """Return the broker's topic table, JSON."""
        return self.config / TOPICS_FILE

    @cached_property
    def delay_offset(self) -> Path:
        """Return the file with the delivered offsets of each delay level, JSON."""
        return self.config / DELAYS_FILE

    @cached_property
    def compaction_log(self) -> Path:
        """Return the folder of compacted topics' logs, with a folder per topic."""
        return self.root / "compaction" / "compactionLog"

    @cached_property
    def epoch_file(self) -> Path:
        """Return the marker of controller mode (auto-switch HA)."""
        return self.root / "epochFileCheckpoint"

    @cached_property
    def own(self) -> Path:
        """Return this project's own folder below the root."""
        return self.root / "cqstore"

    @cached_property
    def deleted_topics(self) -> Path:
        """Return the journal of deleted topics."""
        return self.own / "deleted-topics"

    @cached_property
    def expired_queues(self) -> Path:
        """Return the journal of the next offsets of completely expired queues."""
        return self.own / "expired-queues"

    @cached_property
    def index_files(self) -> Path:
        """Return the note of the index files at a clean stop."""
        return self.own / "index-files"

    @cached_property
    def unopened(self) -> Path:
        """Return the mark of a log that was copied here and never opened."""
        return self.own / "unopened"

    @cached_property
    def following(self) -> Path:
        """Return the note of a follower's progress."""
        return self.own / "following"

    @cached_property
    def synced(self) -> Path:
        """Return the note of how far the log is certainly on disk."""
        return self.own / "synced"

    @cached_property
    def log_paths(self) -> Path:
        """Return the note of the folders of a log that is not only in ``commitlog``."""
        return self.own / "log-paths"

    @cached_property
    def passing_over(self) -> Path:
        """Return the record that is being written in place of a damaged one."""
        return self.own / "passing-over"

    @cached_property
    def ab_figures(self) -> Path:
        """Return the counts of reads that both backends answered (``cqstore.ab``)."""
        return self.own / "ab" / "figures"

    @cached_property
    def ab_differences(self) -> Path:
        """Return the journal of reads that backends answered differently (``cqstore.ab``)."""
        return self.own / "ab" / "differences"

    @cached_property
    def cut(self) -> Path:
        """Return the folder of bytes that were cut off the log, or skipped as damaged."""
        return self.own / "cut"

    @cached_property
    def cutting(self) -> Path:
        """Return the note of a truncation of the log that was requested and not done yet."""
        return self.own / "cutting"

    @cached_property
    def mode(self) -> Path:
        """Return the record of the backends in use, and how far lagging ones are complete."""
        return self.own / "mode"

    @cached_property
    def rebuilding(self) -> Path:
        """Return the journal of single queues that are being rebuilt."""
        return self.own / "rebuilding"

    @cached_property
    def new_metadata(self) -> Path:
        """Return the folder in which a form of the broker's metadata is built."""
        return self.own / "new-metadata"

    @cached_property
    def placing_metadata(self) -> Path:
        """Return the journal of a form of metadata that is being put in place."""
        return self.own / "placing-metadata"

    @cached_property
    def replacing(self) -> Path:
        """Return the journal of parts that are being moved away for a rebuild."""
        return self.own / "replacing"

    @cached_property
    def replaced(self) -> Path:
        """Return the folder of parts that were moved away, with a folder per time."""
        return self.own / "replaced"
