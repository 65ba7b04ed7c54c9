"""Rejoin: truncates the log of a former master by the records that the new master lacks.

RocketMQ's protocol without a controller has no such step: its slave continues after its own end,
and both logs reach the same length with different bytes. Here, the former log is first compared
with the new one, and it is cut only if the result is certain and the cut was requested.
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
    """A consumer offset that is beyond the end of its queue once the log is cut."""

    group: str
    """The group, or for the broker's own offsets of delayed messages the name of the file."""
    queue: QueueKey
    offset: int
    queue_end: int

    def as_json(self) -> dict[str, object]:
        """Return the fields under the names of the report."""
        return {
            "group": self.group, "topic": self.queue.topic, "queueId": self.queue.queue_id,
            "offset": self.offset, "queueEnd": self.queue_end,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The cut of a former master's log by a rejoin, planned or done."""

    phy_offset: int
    """The end of the common part."""
    needed: bool
    """Whether there is something to cut, or an interrupted cut to complete."""
    done: bool
    saved: list[SavedTail] = field(default_factory=list)
    beyond: list[OffsetBeyondCut] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Reasons why tables of offsets cannot be read."""


def plan_rejoin(found: Checked) -> Rejoin:
    """Return the plan by which ``found.one`` can follow ``found.other``. Changes nothing.

    Raises:
        RefusedStoreError: the cut is not certain to be right; the message lists all reasons.
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
    """Cut the records from the log in ``former`` that ``new`` lacks; they are kept in files.

    The store is locked while the logs are compared, so nothing is appended. Nothing is cut from a
    log that is a prefix of the new one.

    Raises:
        RefusedStoreError: the cut is not certain to be right; nothing was changed.
        StoreLockedError: the store is open.
        CorruptionError, StoreIOError: a side cannot be read, or a write failed.
    """
    configs = each_config(config)
    own = configs[0]
    how_much = replace(how_much or CheckScope(), queues=False)
    resolve_layout(former, own, read_only=True)  # no lock file in a folder without a store
    resolve_layout(former, own, read_only=False)
    paths = StorePaths(former)
    refuse_if_open(paths)
    _refuse_unfinished(paths)
    with StoreLock(paths) as lock:
        with checked(former, new, configs, how_much, progress) as found:
            plan, end = plan_rejoin(found), found.one.log.max_phy_offset()
        if not plan.needed:
            return plan
        cut = cut_log(former, own, plan.phy_offset, end, lock, progress)
    return Rejoin(
        plan.phy_offset, needed=True, done=True, saved=cut.saved, beyond=plan.beyond,
        unread=plan.unread,
    )  # fmt: skip


def cut_to(root: Path, phy_offset: int, config: StoreConfig, progress: Progress = noop) -> Rejoin:
    """Cut the log in ``root`` at ``phy_offset``, up to which it equals a master's; keep the rest.

    ``phy_offset`` must be the start of a record. An interrupted call can be repeated.

    Raises:
        RefusedStoreError: ``phy_offset`` is not the end of a valid record, or another operation is
            unfinished; nothing was changed.
        StoreLockedError: the store is open.
        CorruptionError, StoreIOError: the store cannot be read, or a write failed.
    """
    paths = StorePaths(root)
    refuse_if_open(paths)
    _refuse_unfinished(paths)
    with StoreLock(paths) as lock:
        with open_side(root, readable(config)) as side:
            end = side.log.max_phy_offset()
            beyond, unread = _beyond(side.config, _ends_behind(side.log, phy_offset))
        cut = cut_log(root, config, phy_offset, end, lock, progress)
    return Rejoin(phy_offset, needed=True, done=True, saved=cut.saved, beyond=beyond, unread=unread)


def _refuse_unfinished(paths: StorePaths) -> None:
    """Refuse a store with an unfinished operation that reads the log.

    Raises:
        RefusedStoreError: there is such an operation.
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
    """Yield the reasons why the former log cannot be cut to match the new one."""
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
    """Return the new ends of the queues that have records from ``phy_offset`` on."""
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
        pass  # records after damage are cut too, but their queues are unknown
    return ends


def _beyond(
    config: Path | None, ends: Mapping[QueueKey, int]
) -> tuple[list[OffsetBeyondCut], list[str]]:
    """Return the offsets in the broker's tables that are beyond ``ends``, and unreadable tables."""
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
