"""A former master comes back: what it has and the new master has not is cut off its log.

RocketMQ's wire without a controller knows no such step: its slave goes on behind its own end, and
both logs end up with one length and other bytes. Here the former one's log is compared with the new
one's first, and nothing is cut unless that leaves no doubt and it was asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cqstore.broker.metadata.differences import offsets_by_queue, read_tables
from cqstore.replication.ha.check_report import Checked
from cqstore.replication.ha.ha_check import (
    CheckScope,
    MasterAddress,
    SideConfigs,
    checked,
    each_config,
)
from cqstore.replication.ha.sides import open_side, readable
from cqstore.store.broker_files.file_names import DELAYS_FILE
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreIOError
from cqstore.store.journals.store_lock import StoreLock, refuse_if_open
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import SCHEDULE_TOPIC, is_queued
from cqstore.store.record.properties import dispatch_properties
from cqstore.store.service.dispatching.record_units import light_queues
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.offline.log_cut import cut_log
from cqstore.store.service.recovering.find_log_end import SavedTail
from cqstore.store.settings.config import StoreConfig


@dataclass(frozen=True, slots=True)
class OffsetBeyondCut:
    """A consumer's offset that lies behind the end of its queue once the log is cut."""

    group: str
    """Or the name of the file, of the broker's own offsets of delayed messages."""
    queue: QueueKey
    offset: int
    queue_end: int

    def as_json(self) -> dict[str, object]:
        """Return the fields under the names that the report has."""
        return {
            "group": self.group, "topic": self.queue.topic, "queueId": self.queue.queue_id,
            "offset": self.offset, "queueEnd": self.queue_end,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rejoin:
    """What a rejoin cuts off the log of a former master, or has cut."""

    phy_offset: int
    """The common end."""
    needed: bool
    """There is something to cut, or a cut to be finished."""
    done: bool
    saved: list[SavedTail] = field(default_factory=list)
    beyond: list[OffsetBeyondCut] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Tables of offsets that cannot be read, and why."""


def plan_rejoin(found: Checked) -> Rejoin:
    """Return what bringing ``found.one`` back to ``found.other`` takes. Changes nothing.

    Raises:
        RefusedStoreError: something is in doubt; the sentence says all of it.
    """
    doubts = list(_doubts(found))
    if doubts:
        raise RefusedStoreError(f"nothing was cut: {'; '.join(doubts)}", path=Path(found.one.name))
    former, end = found.one, found.common.end
    needed = end < former.log.max_phy_offset() or former.damage is not None
    ends = _ends_behind(former.log, end)
    beyond, unread = _beyond(former.config, ends)
    return Rejoin(end, needed, done=False, beyond=beyond, unread=unread)


def rejoin(
    former: Path,
    new: MasterAddress,
    config: SideConfigs | None = None,
    how_much: CheckScope | None = None,
    progress: Progress = noop,
) -> Rejoin:
    """Cut off the log in ``former`` what ``new`` has not; what was cut is kept, and named.

    The store is locked while the logs are compared, so nothing is added to it. Nothing is cut of a
    log that is the begin of the other one.

    Raises:
        RefusedStoreError: something is in doubt; nothing was changed.
        StoreLockedError: the store is open.
        CorruptionError, StoreIOError: a side cannot be read, or the disk refused.
    """
    configs = each_config(config)
    own = configs[0]
    how_much = replace(how_much or CheckScope(), queues=False)
    resolve_layout(former, own, read_only=True)  # no lock file where there is no store
    resolve_layout(former, own, read_only=False)
    paths = StorePaths(former)
    refuse_if_open(paths)
    _refuse_unfinished(paths)
    lock = StoreLock(paths)
    try:
        with checked(former, new, configs, how_much, progress) as found:
            plan, end = plan_rejoin(found), found.one.log.max_phy_offset()
        if not plan.needed:
            return plan
        cut = cut_log(former, own, plan.phy_offset, end, lock, progress)
    finally:
        lock.release()
    return Rejoin(
        plan.phy_offset, needed=True, done=True, saved=cut.saved, beyond=plan.beyond,
        unread=plan.unread,
    )  # fmt: skip


def cut_to(root: Path, phy_offset: int, config: StoreConfig, progress: Progress = noop) -> Rejoin:
    """Cut the log in ``root`` at ``phy_offset``, up to which it is a master's; keep what is cut.

    ``phy_offset`` must be where a record begins. A call that was killed can be made again.

    Raises:
        RefusedStoreError: no sound records end there, or something else has begun; nothing was
            changed.
        StoreLockedError: the store is open.
        CorruptionError, StoreIOError: it cannot be read, or the disk refused.
    """
    paths = StorePaths(root)
    refuse_if_open(paths)
    _refuse_unfinished(paths)
    lock = StoreLock(paths)
    try:
        with open_side(root, readable(config)) as side:
            end = side.log.max_phy_offset()
            beyond, unread = _beyond(side.config, _ends_behind(side.log, phy_offset))
        cut = cut_log(root, config, phy_offset, end, lock, progress)
    finally:
        lock.release()
    return Rejoin(phy_offset, needed=True, done=True, saved=cut.saved, beyond=beyond, unread=unread)


def _refuse_unfinished(paths: StorePaths) -> None:
    """Refuse a store in which something else has begun that reads the log.

    Raises:
        RefusedStoreError: it has.
    """
    if exists(paths.replacing) or exists(paths.rebuilding):
        raise RefusedStoreError(
            "a rebuild is not finished: run cqstore recover first", path=paths.root
        )
    if exists(paths.own / "migration" / "plan.json"):
        raise RefusedStoreError(
            "a migration is in progress: finish it or roll it back first (cqstore migrate status)",
            path=paths.root,
        )


def _doubts(found: Checked) -> Iterator[str]:
    """Yield why the former master's log cannot be cut back to the new one's, a sentence each."""
    former, new, common = found.one, found.other, found.common
    sizes = former.log.files.file_size, new.log.files.file_size
    if sizes[0] != sizes[1]:
        yield f"the log files have different sizes, {sizes[0]} and {sizes[1]} bytes"
    if not common.compared:
        yield "the logs have no byte in common"
    elif common.is_empty:
        yield (
            f"no record from {common.compared.start} is equal in both logs: keep the folder, and"
            " follow into an empty one"
        )
    if new.damage is not None:
        yield f"the log of {new.name} is damaged: {new.damage}"
    place = None if former.damage is None else former.damage.phy_offset
    if former.damage is not None and (place is None or place < common.end):
        yield f"the log of {former.name} is damaged before the cut: {former.damage}"


def _ends_behind(log: CommitLog, phy_offset: int) -> dict[QueueKey, int]:
    """Return where the queues end that have records from ``phy_offset`` on, without those."""
    ends: dict[QueueKey, int] = {}
    try:
        for record in log.scan(phy_offset):
            if not is_queued(record.sys_flag):
                continue
            places = [(record.topic, record.queue_id, record.queue_offset)]
            properties = dispatch_properties(record.properties)
            if properties.multi_dispatch:
                places += [(name, 0, at) for name, at in light_queues(record.topic, properties)]
            for topic, queue_id, offset in places:
                ends.setdefault(QueueKey(topic, queue_id), offset)
    except CorruptionError:
        pass  # what lies behind damage is cut too, and its consumers are not known
    return ends


def _beyond(
    config: Path | None, ends: Mapping[QueueKey, int]
) -> tuple[list[OffsetBeyondCut], list[str]]:
    """Return the offsets in the broker's tables that lie behind these ends."""
    if config is None:
        return [], []
    try:
        tables = read_tables(config)
    except StoreIOError as exc:
        return [], [str(exc)]
    offsets = offsets_by_queue(tables)
    for level, offset in tables.found.delay_offsets.items():
        offsets[SCHEDULE_TOPIC, DELAYS_FILE, level - 1] = offset
    found = [
        OffsetBeyondCut(group, key, offset, ends[key])
        for (topic, group, queue_id), offset in sorted(offsets.items())
        if (key := QueueKey(topic, queue_id)) in ends and offset > ends[key]
    ]
    return found, tables.sentences_of("offsets", "delay_offsets")
