"""FollowedMove: from a base copy to a follower that replaces its broker.

Each step is detected as done or not done from the files, so the same call continues after any
interruption. The broker's store is only read.
"""

import json
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.broker.conversion.broker_process import BrokerProcess
from cqstore.broker.conversion.conversion import NextBroker
from cqstore.broker.conversion.table_files import newest_table
from cqstore.migration.follow.beside import copy_tables
from cqstore.migration.follow.proof import (
    compare_shown,
    compare_with_broker,
    deleted_topics,
    drain,
    last_units,
    refuse_lost_history,
    refuse_other_ends,
    refuse_other_tail,
)
from cqstore.migration.markers import read_marker
from cqstore.migration.preflight.obstacles import Step, obstacles, refuse
from cqstore.migration.workspace import write_file
from cqstore.replication.follow.base_copy import closed_files, copy_base
from cqstore.replication.follow.blocking import to_the_end
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import FollowerProgress, Timing
from cqstore.store.comparing.compared import Compared
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreError, os_errors
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.path_kind import exists, matching
from cqstore.store.paths import StorePaths
from cqstore.store.progress import OnEvent, noop
from cqstore.store.queue.backends import backend, backend_names
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.layout.store_layout import (
    choose_backends,
    refuse_log_elsewhere,
    with_log_folder,
)
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.delay_levels import unlike_levels
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions, StoreHooks
from cqstore.store.settings.config import StoreConfig

_NOTE = "followed.json"
_LEVEL_SECONDS = 2.0
"""Maximum age of the last local record, by the clock of the same machine."""
_TRIES = 5
_TRY_SECONDS = 1.0
"""Pause before comparing again if the broker has not dispatched its whole log."""


@dataclass(slots=True)
class FollowedReport:
    """Progress and results of the move."""

    verified_to: int = -1
    """Phy offset up to which all units were compared; -1: none yet. Units of RocksDB queues that a
    running broker has not flushed are compared after it has stopped."""
    queues: int = 0
    units: int = 0
    deleted_topics: int = 0
    """Number of topics that the broker had deleted, and that were deleted in the new store too."""
    stopped: bool = False
    """The broker has stopped, everything is copied, and the ends of all queues are equal."""
    end: int = 0
    """Max phy offset of the new store."""
    drained_bytes: int = 0
    """Bytes that were not replicated but read from the broker's log after it had stopped."""
    down_seconds: float = 0.0
    """Time from the broker's last message until it can be started again."""
    prepared_tables: list[str] = field(default_factory=list)
    """Changes made to the broker's tables so that the next broker reads them."""
    converted_tables: dict[str, object] = field(default_factory=dict)
    """Source forms, target form and counts; empty if the tables had the right form."""
    older_tables: list[str] = field(default_factory=list)
    """Tables whose JSON files, which the next broker reads, are older than those in RocksDB."""
    not_taken: list[str] = field(default_factory=list)
    """Other files in the broker's folder (for example compacted topics), which are not copied."""


class FollowedMove:
    """Moves the store of a running broker into a folder of its own."""

    def __init__(
        self,
        broker: Path,
        master: tuple[str, int],
        own: Path,
        config: StoreConfig,
        *,
        backend: str = "rocksdb",
        timing: Timing | None = None,
        without: Collection[AcceptedLoss] = (),
        accept_older_tables: bool = False,
        commit_log: Path | None = None,
        on_event: OnEvent = noop,
    ) -> None:
        """``broker`` is the root of the broker's store, ``own`` that of the new one.

        ``master``: host and replication port of the broker. ``accept_older_tables``: in a move to
        file queues, do not convert the tables in RocksDB to JSON files. ``commit_log``: the
        broker's ``storePathCommitLog``, if it is not the default. ``without``: data that may be
        left out if it cannot be copied or converted.
        """
        self._broker, self._own = StorePaths(broker.absolute()), StorePaths(own.absolute())
        self._master, self._config, self._backend = master, config, backend
        # storePathCommitLog is that of the new store: the broker's log must not be read from there.
        default = config.model_copy(update={"store_path_commit_log": None})
        self._broker_config = with_log_folder(default, commit_log)
        self._timing = timing or Timing(last_retry=0.5)
        self._next = NextBroker([backend], config, without, accept_older_tables)
        self._on_event = on_event
        self._process = BrokerProcess(self._broker)
        self._note = self._own.own / _NOTE
        self._last_sign = time.monotonic()
        self._opened: MessageStore | None = None  # also after the wait for it has ended
        self.report = self._read_note()

    async def run(self) -> FollowedReport:
        """Run all steps until the broker has stopped and the new store is complete.

        The call can be cancelled at any time; the next call continues.

        Raises:
            RefusedStoreError: the queues differ, or the broker's log does not continue the local
                one; nothing is changed in the broker's store.
            StoreError: as for following, and for opening either store.
        """
        await to_the_end(self._begin)
        try:
            store = await to_the_end(self._open)
            self._refuse_if_replaced(store)
            follower = self._follower(store)
            if self.report.verified_to < 0:
                await follower.run(partial(self._is_level, store))
                if not self._is_stopped():
                    await to_the_end(self._verify, store)
            if not self._is_stopped():
                self._on_event("following; you can stop the broker now")
            await self._follower(store).run(self._has_stopped)
            await self._process.ended(self._on_event)
            await to_the_end(self._finish, store)
        finally:
            if self._opened is not None:
                await to_the_end(self._opened.close)
        return self.report

    # ---- steps

    def _begin(self) -> None:
        """Copy the closed log files of the broker, if the new store has no log yet.

        Raises:
            RefusedStoreError: there is no store to move, the folders overlap, a log is in another
                folder, the delay levels differ from the broker's, or a topic exists only as files.
        """
        refuse_log_elsewhere(self._own.root, self._config)
        layout, _ = resolve_layout(self._broker.root, self._broker_config, read_only=True)
        if not layout.has_log:
            raise RefusedStoreError(
                "no commit log found. If the broker's storePathCommitLog is another folder, name it"
                " with --commitlog",
                path=self._broker.commit_log,
            )
        if not self.report.stopped:  # a refusal must come before the broker stops
            root, config = self._broker.root, self._broker_config
            found = obstacles(root, config, self._backend, Step.FOLLOW, broker=self._next)
            refuse(found, "follow the broker", root)
        self._process.has_store()  # records which process has to stop
        new, former = self._own.root.resolve(), self._broker.root.resolve()
        if new == former or former in new.parents or new in former.parents:
            raise RefusedStoreError(
                "the folder of the new store must not be, contain or be inside the folder of the"
                f" broker's store, {self._broker.root}",
                path=self._own.root,
            )
        own, settings = resolve_layout(self._own.root, self._config, read_only=False)
        choose_backends(own, settings, self._backend)  # refuse now if it cannot be opened later
        if matching(self._own.commit_log, "*"):
            return
        self._refuse_other_levels()
        try:
            closed_files(self._broker.root, layout.log_folders)
        except RefusedStoreError:
            return  # there is only one file, which the master sends
        self._on_event("copying the closed log files")
        copy_base(self._broker.root, self._own.root, folders=layout.log_folders)

    def _refuse_other_levels(self) -> None:
        """Refuse delay levels that would give the new queues other due times than the broker's."""
        with self._reading() as theirs:
            for each in unlike_levels(theirs, self._config.message_delay_level, 0):
                raise RefusedStoreError(each.sentence(), path=self._broker.root)

    def _open(self) -> MessageStore:
        self._on_event("opening the new store")
        config = self._config.without_schedule()
        # Without installed hooks: the broker calls them.
        options = OpenOptions(backend=self._backend, hooks=StoreHooks(installed=False))
        self._opened = open_served(MessageStore, self._own.root, config, options)
        return self._opened

    def _refuse_if_replaced(self, store: MessageStore) -> None:
        """Refuse to continue if a broker was started on the new store since the takeover.

        Raises:
            RefusedStoreError: its log or its tables were changed.
        """
        end = store.max_phy_offset()
        if self.report.stopped and end > self.report.end:
            raise RefusedStoreError(
                f"messages were appended after the takeover at phy offset {self.report.end}: the"
                f" log now ends at {end}. Keep using this store; it cannot follow again",
                path=self._own.root,
            )
        newest = newest_table(self._own) if self.report.stopped else None
        with os_errors("examine the state file of the move", self._note):
            if newest is not None and newest > self._note.stat().st_mtime:
                raise RefusedStoreError(
                    "the tables were changed after the takeover: the former broker's tables would"
                    " overwrite them. Keep using this store; it cannot follow again",
                    path=self._own.config,
                )

    def _follower(self, store: MessageStore) -> Follower:
        return Follower(store, *self._master, timing=self._timing, on_event=self._on_event)

    def _is_level(self, store: MessageStore, progress: FollowerProgress) -> bool:
        """Return whether the follower has all that the broker had a moment ago.

        A broker that is busy always has more: then the last record here is a new one.
        """
        stored = components_of(store).log.followed_timestamp / 1000
        is_new = progress.verified and time.time() - stored < _LEVEL_SECONDS
        return is_new or progress.caught_up or self._has_stopped(progress)

    def _has_stopped(self, progress: FollowerProgress) -> bool:
        if progress.connected:
            self._last_sign = time.monotonic()
        return not progress.connected and self._is_stopped()

    def _is_stopped(self) -> bool:
        """Return whether the broker has released its store."""
        return not self._process.has_store()

    def _reading(self) -> MessageStore:
        """Open the broker's store to read, as it is now."""
        return MessageStore.open(
            self._broker.root, self._broker_config, read_only=True, housekeeping=False
        )

    def _verify(self, store: MessageStore) -> None:
        """Compare all queues with the broker's; the new store is not written meanwhile.

        The comparison is repeated if the broker had not dispatched its whole log.
        """
        self._on_event("comparing all queues with the broker's")
        store.flush()
        compared, shown = self._compare_running(store)
        for _ in range(_TRIES):
            if compared.is_clean:
                break
            time.sleep(_TRY_SECONDS)
            compared, shown = self._compare_running(store)
        self._mark_verified(compared, shown)
        if shown < store.max_phy_offset():
            self._on_event(
                "the broker has not flushed all units of its queues: the rest is compared after it"
                " has stopped"
            )

    def _mark_verified(self, compared: Compared, end: int, before: int = 0) -> None:
        """Record that the queues are equal up to ``end``; ``before``: units compared earlier."""
        self._refuse_difference(compared)
        self.report.queues, self.report.units = compared.queues, compared.units + before
        self.report.verified_to = end
        self._write_note()
        self._on_event(
            f"{compared.queues} queues and {self.report.units} units are equal to the broker's, up"
            f" to phy offset {end}"
        )

    def _compare_running(self, store: MessageStore) -> tuple[Compared, int]:
        with self._reading() as theirs:
            refuse_lost_history(components_of(theirs).log, components_of(store).log)
            there, here = last_units(theirs), last_units(store)
            self._delete(store, deleted_topics(there, here))
            return compare_shown(theirs, store)

    def _delete(self, store: MessageStore, topics: list[str]) -> None:
        if topics:
            self._on_event(f"deleting {len(topics)} topics that the broker has deleted")
            store.delete_topics(topics)
            self.report.deleted_topics += len(topics)

    def _refuse_difference(self, compared: Compared) -> None:
        """Refuse to continue if queues differ from the broker's.

        Raises:
            RefusedStoreError: queues differ or cannot be compared.
        """
        if not compared.is_clean:
            queue, finding = next(iter(compared.differences()))
            raise RefusedStoreError(
                f"{compared.tally.differing} queues differ from the broker's: queue"
                f" {queue.queue_id} of topic {queue.topic!r}: {compared.sentence(finding)}",
                path=self._own.root,
            )
        if compared.skipped:
            raise RefusedStoreError(
                f"cannot move {len(compared.skipped)} queues of BatchCQ topics: they cannot be"
                " compared with the broker's",
                path=self._broker.root,
            )

    def _finish(self, store: MessageStore) -> None:
        """Take over from the stopped broker, whose store is locked meanwhile."""
        with StoreLock(self._broker):
            self._receive_rest(store)
            store.close()
            done = copy_tables(self._broker, self._own, self._next)
            self.report.prepared_tables, self.report.older_tables = done.sentences, done.older
            self.report.converted_tables = done.converted
            self.report.not_taken = self._others()
        self.report.stopped = True
        self.report.down_seconds = round(time.monotonic() - self._last_sign, 3)
        self._write_note()

    def _receive_rest(self, store: MessageStore) -> None:
        """Read the rest of the broker's log, and compare the ends of all queues."""
        if exists(self._broker.abort):
            raise RefusedStoreError(
                "the broker did not shut down cleanly: start it, stop it again, then repeat this"
                " call",
                path=self._broker.root,
            )
        with self._reading() as theirs:
            refuse_lost_history(components_of(theirs).log, components_of(store).log)
            refuse_other_tail(components_of(theirs).log, components_of(store).log)
            self.report.drained_bytes += drain(components_of(theirs).log, store)
            store.flush()
            there, here = last_units(theirs), last_units(store)
            gone = frozenset(deleted_topics(there, here))
            self._delete(store, sorted(gone))
            left = {key: unit for key, unit in here.items() if key.topic not in gone}
            self._verify_rest(theirs, store)
            refuse_other_ends(there, left, self._broker.root)
            self.report.queues, self.report.end = len(there), store.max_phy_offset()

    def _verify_rest(self, theirs: MessageStore, store: MessageStore) -> None:
        """Compare the units that could not be compared while the broker ran."""
        end = store.max_phy_offset()
        if self.report.verified_to < 0:
            self._mark_verified(compare_with_broker(theirs, store), end)
        elif components_of(theirs).queues.hides_unflushed:
            units, since = self.report.units, self.report.verified_to
            self._mark_verified(compare_with_broker(theirs, store, since), end, units)

    def _others(self) -> list[str]:
        """Return names in the broker's folder that are neither copied nor those of queues."""
        with os_errors("list the folder", self._broker.root):
            there = {path.name for path in self._broker.root.iterdir()}
            here = {path.name for path in self._own.root.iterdir()}
        names = backend_names()
        queues = {path.name for name in names for path in backend(name).folders(self._broker)}
        return sorted(there - here - queues)

    # ---- the state file

    def _read_note(self) -> FollowedReport:
        """Read the state file of the move; return an empty report if there is none.

        Raises:
            RefusedStoreError: it belongs to the store of another broker.
            StoreError: it is damaged.
        """
        if not exists(self._note):
            return FollowedReport()
        try:
            found = read_marker(self._note)
            if (broker := found.pop("broker")) != str(self._broker.root):
                raise RefusedStoreError(
                    f"this folder already follows another store, {broker}", path=self._own.root
                )
            return FollowedReport(**found)
        except (
            CorruptionError, ValueError, TypeError, KeyError, AttributeError, OSError,
        ) as exc:  # fmt: skip
            raise StoreError("the state file of the move is corrupted", path=self._note) from exc

    def _write_note(self) -> None:
        note = {"broker": str(self._broker.root), **asdict(self.report)}
        write_file(self._note, json.dumps(note) + "\n")
