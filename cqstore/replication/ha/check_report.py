"""The result of a comparison of two logs, for operators and for programs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cqstore.broker.metadata.differences import BrokerTables, EntryDifference, not_compared
from cqstore.replication.ha.diverged_tail import OwnRecords, place_of
from cqstore.replication.ha.logs import Common
from cqstore.replication.ha.sides import LogSide, Undispatched
from cqstore.store.sentences import some_of

_SHOWN_TOPICS = 5
_SHOWN_NAMES = 20
_COMPARE_MORE = " (--last BYTES compares more)"


@dataclass(frozen=True, slots=True)
class Checked:
    """The two compared sides, and what is equal and different. The logs must still be open."""

    one: LogSide
    other: LogSide
    common: Common
    tails: tuple[OwnRecords, OwnRecords]
    stuck: tuple[Undispatched | None, Undispatched | None]
    tables: tuple[BrokerTables | None, BrokerTables | None] = (None, None)
    """Tables of each side's broker; ``None``: there are none, or they could not be read."""
    unread: list[str] = field(default_factory=list)
    """Reasons why tables could not be read."""
    metadata: list[EntryDifference] = field(default_factory=list)
    """Differences between the brokers' tables."""

    @property
    def sides(self) -> tuple[LogSide, LogSide]:
        """Return the sides that were compared, ``a`` and ``b`` of the report."""
        return self.one, self.other

    def remarks(self) -> Iterator[str]:
        """Yield a sentence for each thing that was not compared and need not be."""
        one, other = self.tables
        if one is not None and other is not None:
            yield from not_compared(one, other)

    def differences(self) -> Iterator[str]:
        """Yield a sentence for each difference and each problem of a side."""
        if sentence := self._of_logs():
            yield sentence
        for side, stuck in zip(self.sides, self.stuck, strict=True):
            if side.damage is not None:
                yield f"{side.name}: {side.damage}"
            if side.bytes_behind_end:
                yield f"{side.name}: {side.bytes_behind_end} bytes after its end are not records"
            if side.damaged_queues:
                yield f"{side.name}: {side.damaged_queues} queues are damaged (run cqstore check)"
            if stuck is not None:
                later = " (the store was not closed properly: the next open dispatches them)"
                yield (
                    f"{side.name}: {stuck.records} records are missing from their queues, the first"
                    f" at phy offset {stuck.phy_offset} (queue {stuck.queue.queue_id} of topic"
                    f" {stuck.queue.topic!r})" + (later if stuck.needs_recovery else "")
                )
        if metadata := self.metadata:
            names = [f"{each.table}: {each.name}" for each in metadata[:_SHOWN_NAMES]]
            listed = some_of(names, len(metadata), "; ")
            yield f"{len(metadata)} entries of the brokers' tables differ: {listed}"
        yield from self._unread_tables()

    def _unread_tables(self) -> Iterator[str]:
        yield from self.unread
        one, other = self.tables
        if one is not None and other is not None:
            for side, tables in ((self.one, one), (self.other, other)):
                yield from (f"{side.name}: {sentence}" for sentence in tables.sentences())

    def _of_logs(self) -> str:
        """Return a sentence on how the logs differ; empty if one is a prefix of the other."""
        common, (one, other) = self.common, self.sides
        sizes = [side.log.files.file_size for side in self.sides]
        unlike = f" (log files of {sizes[0]} and {sizes[1]} bytes)" if len({*sizes}) > 1 else ""
        if common.differs_at is not None and common.is_empty:
            more = "" if all(side.whole_begin for side in self.sides) else _COMPARE_MORE
            where = (
                f"the logs diverge at {common.end} or before{more}" if common.end
                else "the logs diverge in their first record"
            )  # fmt: skip
            return f"the logs have no compared record in common{unlike}: {where}"
        if common.differs_at is not None:
            return (
                f"the logs diverge at {common.end}: the first byte that differs is"
                f" {common.differs_at}{unlike}"
            )
        ends = [side.log.max_phy_offset() for side in self.sides]
        if not common.compared and min(ends) > 0:
            return f"the logs have no byte in common: {_range(one)} and {_range(other)}"
        return ""

    def summary(self) -> str:
        """Return one sentence on what the logs have in common."""
        common = self.common
        if not common.compared:
            return "nothing could be compared"
        low, high = common.compared.start, common.end
        if common.differs_at is not None and common.is_empty:
            return f"no record in common from {low}"
        if common.differs_at is not None:
            return f"equal from {low} to {high}, then the logs diverge"
        tails = [tail.end - tail.begin for tail in self.tails]
        if not any(tails):
            return f"equal from {low} to {high}, where both logs end"
        lagging = self.sides[0] if tails[1] > tails[0] else self.sides[1]
        lag = f"it lags by {max(tails)} bytes"
        return f"equal from {low} to {high}, where {lagging.name} ends: {lag}"

    def as_json(self) -> dict[str, object]:
        """Return the whole result as JSON for a program, always with the same keys."""
        common = self.common
        at = common.end
        parted = common.differs_at is not None
        logs = [side.log for side in self.sides]
        return {
            "a": self.one.as_json(self.stuck[0]), "b": self.other.as_json(self.stuck[1]),
            "compared": [common.compared.start, common.compared.stop],
            "commonEnd": common.end if common.compared else None,
            "divergence": {
                "phyOffset": at, "firstByte": common.differs_at,
                "a": place_of(logs[0], at), "b": place_of(logs[1], at),
            } if parted else None,
            "own": {"a": self.tails[0].as_json(), "b": self.tails[1].as_json()},
            "metadataForms": {
                name: None if each is None else each.as_json()
                for name, each in zip("ab", self.tables, strict=True)
            },
            "metadata": [each.as_json() for each in self.metadata],
            "notCompared": list(self.remarks()),
            "differences": list(self.differences()),
        }  # fmt: skip

    def rows(self) -> Iterator[dict[str, object]]:
        """Yield the rows of a table: a name, and the value of each side."""
        sides, at = self.sides, self.common.end
        yield self._row("log begins at", [side.log.min_phy_offset() for side in sides])
        ends = [f"{side.log.max_phy_offset()}{'' if side.whole else ' or later'}"
                for side in sides]  # fmt: skip
        yield self._row("log ends at", ends)
        yield self._row("log file size", [side.log.files.file_size for side in sides])
        if self.common.differs_at is not None:
            yield self._row(f"at {at}", [_shown(place_of(side.log, at)) for side in sides])
        yield self._row("own records", [tail.records for tail in self.tails])
        yield self._row("own bytes", [tail.end - tail.begin for tail in self.tails])
        for label, times in {
            "first stored": [tail.first_stored for tail in self.tails],
            "last stored": [tail.last_stored for tail in self.tails],
        }.items():
            if any(times):
                yield self._row(label, [_time(each) for each in times])
        if any(tail.topics for tail in self.tails):
            yield self._row("topics", [_topics(tail) for tail in self.tails])
        if any(self.tables):
            shown = ["" if each is None else each.shown() for each in self.tables]
            yield self._row("metadata form", shown)

    def _row(self, what: str, values: list[object] | list[int] | list[str]) -> dict[str, object]:
        return {"": what, "A": values[0], "B": values[1]}


def _range(side: LogSide) -> str:
    log = side.log
    return f"{max(log.min_phy_offset(), 0)} to {log.max_phy_offset()}"


def _shown(place: dict[str, object]) -> str:
    """Return the content of a log at one place, as text."""
    what = str(place["what"])
    if "topic" in place:
        what = (
            f"{place['topic']}/{place['queueId']}/{place['queueOffset']}, {place['size']} bytes,"
            f" {_time(place['storeTimestamp'])}"
        )
    return what


def _time(milliseconds: object) -> str:
    """Return a store time as text, or the number itself if it is not a valid time."""
    if not isinstance(milliseconds, int):
        return ""
    try:
        found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # not a valid time, as in a damaged record
        return str(milliseconds)
    return found.isoformat(timespec="milliseconds")


def _topics(tail: OwnRecords) -> str:
    shown = [f"{topic} {count}" for topic, count in tail.topics.most_common(_SHOWN_TOPICS)]
    more = len(tail.topics) - len(shown)
    return ", ".join(shown) + (f", and {more} more" if more else "")
