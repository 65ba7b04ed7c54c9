"""``cqstore top --by group``: samples of the progress of consumer groups in a running store.

Offsets are read from the metadata, which a broker or an embedded log writes every five seconds. So
a rate is computed between two samples that found new offsets, not between any two samples. Lag,
retries and dead letters are counted as in ``cqstore groups``.
"""

import heapq
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cqstore.broker.groups.group_lag import GroupRows, LagTotals
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.one_form import named_form, read_one_form
from cqstore.broker.queue_ends import FollowedEnds
from cqstore.cli.commands.top import TopView
from cqstore.cli.table import Row
from cqstore.store.log.tail_topics import OTHERS
from cqstore.store.paths import StorePaths
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig

_STILL_SECONDS = 12.0
"""Seconds without new offsets after which the rates are 0."""


@dataclass(frozen=True, slots=True)
class GroupLook:
    """Sample of the progress of each group, and its consumption rate since earlier samples."""

    groups: Mapping[str, LagTotals]
    per_second: Mapping[str, float]
    """Group → messages consumed per second, for groups whose rate is known."""
    faults: Sequence[str] = ()
    """Errors about unreadable parts of the metadata."""


class GroupWatch:
    """Sampler of the groups of one store. Used by one thread.

    Memory use depends only on the number of offsets in the metadata.
    """

    def __init__(
        self,
        paths: StorePaths,
        ends: FollowedEnds,
        form: Form | None = None,
        conf: Path | None = None,
    ) -> None:
        """``form`` and ``conf`` select the metadata, see ``read_one_form``."""
        self._paths, self._ends, self._form, self._conf = paths, ends, form, conf
        self._metadata: BrokerMetadata | None = None
        self._offsets: dict[str, int] | None = None  # group → sum of its offsets at the last sample
        self._since = 0.0  # time when these offsets were first seen
        self._has_changed = False  # otherwise the offsets may be older than the first sample
        self._per_second: dict[str, float] = {}
        self.clock = time.monotonic
        """Monotonic clock, in seconds."""

    def sample(self) -> GroupLook:
        """Return a sample of the current progress of the groups.

        If a part of the metadata is unreadable, the last complete metadata is used, if there is
        any.

        Raises:
            RefusedStoreError: there is no metadata, or it exists in several forms.
            StoreError: the store cannot be read.
        """
        found = read_one_form(self._paths, self._form, self._conf)
        if self._metadata is None or self._metadata.faults or not found.faults:
            self._metadata = found
        known = GroupRows(self._metadata)
        self._ends.refresh(known.rows.keys())
        totals: dict[str, LagTotals] = defaultdict(LagTotals)
        for group in known.groups:
            totals[group] = LagTotals()
        for topic in self._ends.topics():
            for queue in known.of_topic(topic, self._ends.spans(topic)):
                totals[queue.group].add_by_kind(queue)
        self._note({name: of.offset for name, of in totals.items()})
        return GroupLook(totals, self._per_second, [*map(str, found.faults)])

    def _note(self, offsets: dict[str, int]) -> None:
        """Record the offsets of each group and compute their rates."""
        now, before, self._offsets = self.clock(), self._offsets, offsets
        seconds = now - self._since
        if before is None:
            self._since = now
        elif offsets != before or seconds >= _STILL_SECONDS:
            if self._has_changed or offsets == before:
                self._per_second = {
                    name: (offset - before[name]) / max(seconds, 1e-9)
                    for name, offset in offsets.items()
                    if name in before
                }
            self._since, self._has_changed = now, True


def group_rows(look: GroupLook, _before: GroupLook | None, limit: int) -> Iterator[Row]:
    """Yield one row per group, the largest lag first, and one row for all others.

    Groups without lag are ordered by retries, then by dead letters.
    """
    groups = look.groups
    names = heapq.nsmallest(limit, groups, lambda name: _rank(name, groups[name]))
    for name in names:
        yield _row(name, [groups[name]], look.per_second.get(name))
    if others := groups.keys() - {*names}:
        known = [look.per_second[name] for name in others & look.per_second.keys()]
        yield _row(OTHERS, [groups[name] for name in others], sum(known) if known else None)


def group_view(
    root: Path, config: StoreConfig, form: str | None, conf: Path | None, limit: int
) -> TopView[GroupLook]:
    """Return the view of ``cqstore top --by group``; an entry point of ``cqstore.top``.

    Raises:
        typer.BadParameter: there is no such form.
    """
    wanted = named_form(form)
    open_store = partial(MessageStore.open, root, config, read_only=True, housekeeping=False)
    paths = StorePaths(root)
    none = f"no consumer groups found in {paths.config}"
    return TopView(
        GroupWatch(paths, FollowedEnds(open_store), wanted, conf), partial(group_rows, limit=limit),
        notes=lambda look, _: [] if look.groups else [none], faults=lambda look, _: look.faults,
    )  # fmt: skip


def _rank(name: str, of: LagTotals) -> tuple[int, int, int, str]:
    return -of.lag, -of.retry_lag, -of.dead_letters, name


def _row(group: str, parts: list[LagTotals], per_second: float | None) -> Row:
    """Return a group's sums as a row."""
    return {
        "group": group, "topics": sum(len(each.topics) for each in parts),
        "offset": sum(each.offset for each in parts), "end": sum(each.end for each in parts),
        "lag": sum(each.lag for each in parts),
        "perSecond": None if per_second is None else round(per_second, 1),
        "retryLag": sum(each.retry_lag for each in parts),
        "deadLetters": sum(each.dead_letters for each in parts),
    }  # fmt: skip
