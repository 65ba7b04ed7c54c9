"""Live: a result built from the files that a store's mirror saved in ``cqstore/ab``.

The store may be open, in this or another process: only the mirror's two files are read. A round is
one hour of one opening.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from cqstore.ab.extras import need_extras
from cqstore.ab.measuring.histograms import histogram_of
from cqstore.ab.measuring.machine_facts import this_machine
from cqstore.ab.mirror.mirror_figures import (
    AGAIN,
    FINE_BOUNDS,
    Hour,
    MirrorFiguresSnapshot,
    ReadOrigin,
    read_figures,
)
from cqstore.ab.mirror.mismatches import Mismatch, read_mismatches
from cqstore.ab.mirror.verdict import ReadOutcome
from cqstore.ab.results.result import (
    Answers,
    Cache,
    Difference,
    Method,
    Result,
    Round,
    Shape,
    Side,
    WorkloadFigures,
)
from cqstore.ab.trace.operation_lines import StoreOp
from cqstore.store.errors import RefusedStoreError
from cqstore.store.path_kind import is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.settings.config import StoreConfig

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

_COMPARED = (ReadOutcome.SAME, ReadOutcome.EXPLAINED, ReadOutcome.DIFFERENT)
_MAX_SHOWN = 100
"""Maximum number of differences in a result; the journal may have more."""
_WHAT = {
    StoreOp.PULL: "Read min offset, max offset and units of a queue for a pull.",
    StoreOp.MIN_OFFSET: "Get the min offset of a queue.",
    StoreOp.MAX_OFFSET: "Get the max offset of a queue.",
    StoreOp.TIME_SEARCH: "Find the offset for a store time.",
    StoreOp.ESTIMATE: "Estimate how many messages of a range match a filter.",
}
_NS = 1e9


def live_result(root: Path, command: list[str]) -> Result:
    """Return the figures that the mirror of the store in ``root`` saved; it saves once a minute.

    Raises:
        RefusedStoreError: there is no store in ``root``, or its mirror has saved too few reads.
        StoreConfigError: a library of the extra ``ab`` is missing.
        CorruptionError: a file of the mirror is damaged.
        StoreIOError: a file of the mirror cannot be read.
    """
    paths = StorePaths(root)
    if not is_dir(root):
        raise RefusedStoreError("no such folder", path=root)
    figures = read_figures(paths.ab_figures)
    if figures is None:
        resolve_layout(root, StoreConfig(), read_only=True)  # refuses where no store is
    if figures is None or not figures.reads:
        raise RefusedStoreError(
            "no reads of this store have been mirrored yet: open it with double write and abShare",
            path=root,
        )
    need_extras()
    reference, other = _sides(figures, root)
    mismatches = read_mismatches(paths.ab_differences)
    return Result(
        kind="live",
        made=datetime.fromtimestamp(figures.began, UTC).isoformat(timespec="seconds"),
        command=command,
        machine=this_machine(root, {}),
        store=Shape(
            root=str(root), topics=0, queues=0, units=0, log_bytes=0, log_files=0,
            units_of_queue={}, share_of_hottest={},
        ),
        sides=[
            _side(reference), _side(other), _side(reference + AGAIN, reference),
        ],
        method=_method(figures),
        workloads=[
            _workload(op, figures, mismatches, (reference, other))
            for op in StoreOp
            if figures.count(*ReadOutcome, op=op.value)
        ],
        not_measured=list(_limits(figures, mismatches)),
        seconds=figures.saved - figures.began,
    )  # fmt: skip


def _sides(figures: MirrorFiguresSnapshot, root: Path) -> tuple[str, str]:
    """Return the backend that served most reads, and the other backend."""
    counts: Counter[str] = Counter()
    for each in figures.seconds:
        counts[each.side] += sum(each.counts) if each.way is ReadOrigin.MIRRORED else 0
    backends = [side for side in counts if not side.endswith(AGAIN)]
    reference = max(backends, key=lambda side: counts[side + AGAIN], default="")
    others = [side for side in backends if side != reference]
    if not counts[reference + AGAIN] or not others:
        raise RefusedStoreError(
            "too few reads of this store have been mirrored yet to compare latencies", path=root
        )
    return reference, max(others, key=lambda side: counts[side])


def _side(name: str, twin_of: str | None = None) -> Side:
    backend = twin_of or name
    return Side(
        name=name, given=backend, backend=backend, options={}, twin_of=twin_of,
        log_shared_by="one log", build_seconds=0,
    )  # fmt: skip


def _method(figures: MirrorFiguresSnapshot) -> Method:
    return Method.today(
        seed=0,
        rounds=len({hour.began for hour in figures.hours}),
        warm_up="No round is excluded: a round is one hour of a running store.",
        cache=Cache.WARM,
    )


def _workload(
    op: StoreOp, figures: MirrorFiguresSnapshot, mismatches: list[Mismatch], sides: tuple[str, str]
) -> WorkloadFigures:
    """Return what the mirror has measured of one operation, in the form of a workload."""
    reference, other = sides
    names = [reference, other, reference + AGAIN]
    hours = [hour for hour in figures.hours if hour.op == op]
    alike = {hour.began for hour in hours if hour.side == reference + AGAIN}
    rounds = list(_rounds([hour for hour in hours if hour.began in alike and hour.side in names]))
    return WorkloadFigures(
        name=op.value,
        what=_WHAT.get(op, op.value),
        item="units" if op is StoreOp.PULL else "answers",
        rounds=rounds,
        service={
            each.side: _histogram(each.counts).encode().decode()
            for each in figures.seconds
            if each.op == op and each.way is ReadOrigin.MIRRORED and each.side in names
        },
        answers=Answers(
            compared=figures.count(*_COMPARED, op=op.value),
            different=figures.count(ReadOutcome.DIFFERENT, op=op.value),
            first=[_difference(each) for each in mismatches if each.op == op][:_MAX_SHOWN],
        ),
        not_measured="" if rounds else "no such read was repeated on all sides",
    )


def _rounds(hours: list[Hour]) -> Iterator[Round]:
    numbers = {began: number for number, began in enumerate(sorted({h.began for h in hours}))}
    for turn, hour in enumerate(sorted(hours, key=lambda hour: hour.began)):
        yield Round(
            number=numbers[hour.began], turn=turn, side=hour.side, warm_up=False,
            operations=hour.reads, items=hour.items, seconds=hour.seconds,
            cpu_seconds=hour.cpu_seconds, written_bytes=0, read_bytes=0, pss_bytes=0,
            steal=0, others=0, answers="",
            service_ns={"p50": round(hour.p50 * _NS), "p99": round(hour.p99 * _NS)},
        )  # fmt: skip


def _histogram(counts: tuple[int, ...]) -> "HdrHistogram":
    """Return buckets as a histogram of nanoseconds, each value in the middle of its bucket."""
    bounds = (0.0, *FINE_BOUNDS, FINE_BOUNDS[-1])
    middles = [(low + high) / 2 * _NS for low, high in pairwise(bounds)]
    return histogram_of(
        {round(middle): count for middle, count in zip(middles, counts, strict=True) if count}
    )


def _difference(each: Mismatch) -> Difference:
    """Return an answer that differed, in the form of a result."""
    operation: dict[str, int | str | float | bool | None] = {
        "op": each.op, "topic": each.queue.topic, "queueId": each.queue.queue_id,
    }  # fmt: skip
    operation |= {name: value for name, value in each.arguments.items() if value != ""}
    when = datetime.fromtimestamp(each.time, UTC).isoformat(timespec="seconds")
    operation |= {"time": when}
    if each.queue_offset >= 0:
        operation |= {"queueOffset": each.queue_offset, "phyOffset": each.phy_offset}
    if each.wrong:
        operation["wrongByTheLog"] = each.wrong
    return Difference(workload=each.op, operation=operation, answers=dict(each.answers))


def _limits(figures: MirrorFiguresSnapshot, mismatches: list[Mismatch]) -> Iterator[str]:
    """Yield the limits of these figures, one sentence each."""
    yield (
        "Latencies are measured in the mirror's thread: if other threads of the process are busy, a"
        " backend whose calls release the interpreter lock waits to get it back."
    )
    yield (
        "The reference has just read the same data, so it finds the data in memory; the caches of"
        " the other backend hold only what mirrored reads loaded."
    )
    yield "Topics, queues, bytes and memory are not shown: the store is not opened."
    for outcome, text in (
        (
            ReadOutcome.EXPLAINED,
            "differed at first, but were the same when repeated at a moment without a write",
        ),
        (
            ReadOutcome.UNSETTLED,
            "differed, and no moment without a write was found to repeat them",
        ),
        (ReadOutcome.GONE, "were not compared, because the other backend was detached"),
    ):
        if count := figures.count(outcome):
            yield f"{count:,} reads {text}."
    if figures.dropped:
        yield f"{figures.dropped:,} reads were not mirrored, because the mirror's queue was full."
    if (more := figures.count(ReadOutcome.DIFFERENT) - len(mismatches)) > 0:
        yield f"{more:,} different answers are only counted: the journal keeps one per position."
