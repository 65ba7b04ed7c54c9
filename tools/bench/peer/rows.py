"""All rows. The first number of a pair is that of a quick run, the second of a full one."""

from collections.abc import Iterator, Sequence
from itertools import product

from tools.bench.peer.measured import Measured, Published
from tools.bench.peer.replicas import Follows, Replicated
from tools.bench.peer.served import ServedPulls
from tools.bench.peer.sessions import Openings, Replays, Row, Session
from tools.bench.peer.warming import MAX_SECONDS, MAX_SECONDS_QUICK

AnySession = Session | Openings | Replays | Replicated | Follows
BACKENDS = ("file", "rocksdb")
_NO_DESCRIPTORS = "keeps each queue file open, and a process may not open that many"
_DESCRIPTORS = 20_000
_OPENED = {
    "file": (1_000, 10_000, 100_000), "rocksdb": (1_000, 10_000, 100_000, 1_000_000),
}  # fmt: skip
_OPENED_QUICKLY = {"file": (1_000, 10_000), "rocksdb": (1_000, 100_000)}
_FEW, _MANY = 8, 10_000
_SMALL = 128
_IN_FLIGHT = 64
OF_A_PROCESS = " of a process: "
"""In the name of a row of first windows, before the name of its work."""
_BY_TASKS = "tasks of one event loop in cqstore, threads in RocketMQ"
_REPLICATED = "replica: SYNC_MASTER put, 128 B"
_OF_SERVER = (
    "`cqstore serve` and a whole broker, asked by RocketMQ's Java client; CPU time is the server's"
)
_OF_BOTH = "CPU time is that of master and slave until the slave has everything"


def all_sessions(*, quick: bool) -> Iterator[AnySession]:
    """Yield everything, in the order of the table."""
    for backend in BACKENDS:
        for queues, body, threads in product((_FEW, _MANY), (_SMALL, 1024), (1, 4)):
            yield _puts(backend, queues, body, threads, quick=quick)
    for backend in BACKENDS:
        yield _together(backend, quick=quick)
        yield from _durable(backend, quick=quick)
        yield _paced(backend, quick=quick)
        yield _reads(backend, quick=quick)
    for backend in BACKENDS:
        yield _served(backend, quick=quick)
    for backend, queues in product(BACKENDS, (1_000, 10_000, 100_000)):
        if not (quick and _too_many(backend, queues)):
            yield _replay(backend, queues, quick=quick)
    for backend, counts in (_OPENED_QUICKLY if quick else _OPENED).items():
        for queues in counts:
            yield _opening(backend, queues)
    for backend in BACKENDS:
        yield _deletions(backend, quick=quick)
    yield from _replicas(quick=quick)


def in_order(rows: Sequence[Measured | Published], *, quick: bool) -> list[Measured | Published]:
    """Return rows in the order of the table, whenever each was measured.

    A published row whose name there is no more is left out; the others are noted as if measured.
    """
    sessions = list(all_sessions(quick=quick))
    names = [(name, each.backend) for each in sessions for name in each.figures]
    notes = {
        (name, each.backend): row.note
        for each in sessions for row in _rows_of(each) for name in row.figures.values()
    }  # fmt: skip

    def at(row: Measured | Published) -> tuple[int, bool]:
        name = row.name.split(OF_A_PROCESS)[-1]
        return names.index((name, row.backend)), name == row.name

    def is_known(row: Measured | Published) -> bool:
        return (row.name.split(OF_A_PROCESS)[-1], row.backend) in names

    def noted(row: Measured | Published) -> Measured | Published:
        note = notes.get((row.name, row.backend), "")
        return row.model_copy(update={"note": note}) if isinstance(row, Published) else row

    return sorted(
        (noted(row) for row in rows if isinstance(row, Measured) or is_known(row)), key=at
    )


def _rows_of(session: AnySession) -> tuple[Row, ...]:
    return session.rows if isinstance(session, Session) else (session.row,)


def _puts(backend: str, queues: int, body: int, threads: int, *, quick: bool) -> Session:
    count = 120_000 if quick else 600_000
    if body > _SMALL:
        count //= 2
    size = "128 B" if body == _SMALL else "1 KB"
    by = "1 thread" if threads == 1 else f"{threads} threads"
    name = f"put, {size}, {queues:,} queues, {by}"
    first = f"the first {count:,}{OF_A_PROCESS}{name}" if queues == _FEW else ""
    row = Row({"rate": name}, f"put {count} threads={threads}", first=first)
    return _session(backend, (row,), {"queues": str(queues), "body": str(body)}, quick=quick)


def _together(backend: str, *, quick: bool) -> Session:
    count = 192_000 if quick else 960_000
    note = "RocketMQ puts client batches, because it has no put of a list"
    rows = (
        Row({"rate": "put lists of 32"}, f"list {count}", note=note),
        Row({"rate": "put client batches of 32"}, f"batch {count}"),
    )
    return _session(backend, rows, {"queues": str(_FEW)}, quick=quick)


def _durable(backend: str, *, quick: bool) -> Iterator[Session]:
    """Yield the sessions of puts that wait for the disk."""
    settings = {"queues": str(_FEW), "body": "1024", "flush": "SYNC_FLUSH"}
    for threads in (1, 16):
        count = (2_000 if quick else 8_000) * (1 if threads == 1 else 8)
        by = "1 thread" if threads == 1 else f"{threads} threads"
        name = f"durable put (SYNC_FLUSH), 1 KB, {by}"
        row = Row({"rate": name}, f"put {count} threads={threads}")
        yield _session(backend, (row,), settings, quick=quick)
    row = Row(
        {"rate": f"durable put (SYNC_FLUSH), 1 KB, {_IN_FLIGHT} in flight"},
        f"flight {16_000 if quick else 128_000} puts={_IN_FLIGHT}",
        note=_BY_TASKS,
    )
    yield _session(backend, (row,), settings, quick=quick)


def _paced(backend: str, *, quick: bool) -> Session:
    figures = {
        "stall": "10,000 puts/s, 1 KB: the longest put",
        "wait": "10,000 puts/s, 1 KB: 99.9 % done, after they were due",
    }
    row = Row(figures, f"paced {40_000 if quick else 100_000}")
    return _session(backend, (row,), {"queues": str(_FEW), "body": "1024"}, quick=quick)


def _reads(backend: str, *, quick: bool) -> Session:
    """Return the session of pulls, searches and queries."""
    times = 1 if quick else 4
    slow = 1 if backend == "file" else 3
    pulls = 60_000 // slow * times
    decoded, queries = 12_000 * times, 100_000 * times
    rows = (
        Row({"rate": "pulls of 32, places"}, f"pull {pulls}", same_answers=True),
        Row({"rate": "pulls of 32, bytes gathered"}, f"gather {pulls}", same_answers=True),
        Row(
            {"rate": "pulls of 32, decoded"}, f"decode {decoded}", same_answers=True,
            first=f"the first {decoded:,}{OF_A_PROCESS}pulls of 32, decoded",
        ),
        Row({"rate": "time search"}, f"time {80_000 * times}"),
        Row({"rate": "query by key"}, f"query {queries}", same_answers=True),
    )  # fmt: skip
    settings = {"queues": "1000", "keys": "1"}
    return _session(backend, rows, settings, quick=quick, filled=200_000 if quick else 2_000_000)


def _served(backend: str, *, quick: bool) -> ServedPulls:
    """Return the session of pulls by a Java client, from `cqstore serve` and from a broker."""
    pulls = 4_000 if quick else 30_000
    rows = tuple(
        Row(
            {"rate": f"served over loopback: pulls of 32, 1 KB, {threads} at a time"},
            f"pull {pulls} threads={threads}", note=_OF_SERVER, same_answers=True,
        )
        for threads in (1, 16)
    )  # fmt: skip
    settings = {"queues": str(_FEW), "body": "1024"}
    return ServedPulls(
        backend, rows, settings, 100_000 if quick else 400_000,
        warm_seconds=_warm_seconds(quick=quick),
    )  # fmt: skip


def _replay(backend: str, queues: int, *, quick: bool) -> Replays:
    messages = 300_000 if quick else 2_000_000
    row = Row({"rate": f"replay, {queues:,} queues"}, "open")
    return Replays(
        backend=backend, queues=queues, messages=messages, row=row,
        ours_alone=_too_many(backend, queues),
    )  # fmt: skip


def _opening(backend: str, queues: int) -> Openings:
    figures = {
        "each": f"open, {queues:,} queues",
        "memory": f"memory when opened, {queues:,} queues",
        "disk": f"disk a queue of 2 units, {queues:,} queues",
    }
    return Openings(
        backend=backend, queues=queues, row=Row(figures, "open"),
        ours_alone=_too_many(backend, queues),
    )  # fmt: skip


def _too_many(backend: str, queues: int) -> str:
    return _NO_DESCRIPTORS if backend == "file" and queues > _DESCRIPTORS else ""


def _deletions(backend: str, *, quick: bool) -> Session:
    topics = 200 if quick else 1_000
    row = Row(
        {"each": "delete topics of 10 queues, on disk at the end: a topic"}, "delete",
        each=(f"put {200 * topics}",),
        note="cqstore deletes all in one call, RocketMQ in a call per topic and a sync",
    )  # fmt: skip
    return _session(backend, (row,), {"queues": f"{10 * topics}"}, quick=quick)


def _session(
    backend: str, rows: tuple[Row, ...], settings: dict[str, str], *, quick: bool, filled: int = 0
) -> Session:
    return Session(backend, rows, settings, filled, warm_seconds=_warm_seconds(quick=quick))


def _warm_seconds(*, quick: bool) -> float:
    return MAX_SECONDS_QUICK if quick else MAX_SECONDS


def _replicas(*, quick: bool) -> Iterator[AnySession]:
    """Yield the sessions of puts that wait for a replica, and of following."""
    sync = {"role": "SYNC_MASTER", "replicas": "2", "wait": "60000", "queues": str(_FEW)}
    for writers, count in ((1, 12_000), (16, 60_000)):
        puts = count // 3 if quick else count
        by = "1 writer" if writers == 1 else f"{writers} writers"
        name = f"{_REPLICATED}, {by}"
        row = Row({"rate": name}, f"put {puts} threads={writers}", note=_OF_BOTH)
        yield Replicated("file", (row,), sync, warm_seconds=_warm_seconds(quick=quick))
    row = Row(
        {"rate": f"{_REPLICATED}, {_IN_FLIGHT} in flight"},
        f"flight {40_000 if quick else 120_000} puts={_IN_FLIGHT}",
        note=f"{_BY_TASKS}; {_OF_BOTH}",
    )
    yield Replicated("file", (row,), sync, warm_seconds=_warm_seconds(quick=quick))
    count = 120_000 if quick else 600_000
    name = "replica: put, 128 B, 1 thread"
    line = f"put {count} threads=1"
    queues = {"queues": str(_FEW)}
    yield _session("file", (Row({"rate": f"{name}, no slave"}, line),), queues, quick=quick)
    figures = {
        "rate": f"{name}, one asynchronous slave",
        "level": f"{name}, until that slave has it in its queues",
    }
    row = Row(figures, line, note=_OF_BOTH)
    settings = queues | {"role": "ASYNC_MASTER"}
    yield Replicated("file", (row,), settings, warm_seconds=_warm_seconds(quick=quick))
    for backend, (body, count) in product(BACKENDS, ((128, 600_000), (1024, 250_000))):
        size = "128 B" if body == _SMALL else "1 KB"
        yield Follows(
            backend=backend, row=Row({"flow": f"replica: RocketMQ's log followed, {size}"}, ""),
            settings={"queues": "100", "body": str(body)}, messages=count // (3 if quick else 1),
        )  # fmt: skip
