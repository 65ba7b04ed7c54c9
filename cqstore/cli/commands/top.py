"""``cqstore top``: monitors a store that another process has open."""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, TypeVar

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from cqstore.cli.options import CommitLogFolder, ConfigFile, Dir, Format, bounded, note, read_config
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.table import Row, table
from cqstore.cli.top_topics import topic_notes, topic_rows
from cqstore.store.entry_points import entries
from cqstore.store.errors import RefusedStoreError
from cqstore.store.journals.following import Following
from cqstore.store.path_kind import exists
from cqstore.store.service.layout.store_layout import StoreLayout, detect, with_log_folder
from cqstore.store.service.metrics.watch import StoreWatch, WatchSample
from cqstore.store.settings.config import StoreConfig

_GROUP = "cqstore.top"
_LOGGED = re.compile(r"as (\w+) logged (.+)")


class TopBy(StrEnum):
    """Subject of a row of ``cqstore top``."""

    FACT = "fact"
    TOPIC = "topic"
    GROUP = "group"


Look = TypeVar("Look")
Look_co = TypeVar("Look_co", covariant=True)


class Watch(Protocol[Look_co]):
    """Takes samples of one store."""

    def sample(self) -> Look_co:
        """Return a sample of the current state."""


def _nothing(_look: Any, _before: Any) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class TopView(Generic[Look]):
    """A view: what to sample, the rows of a sample, and the notes printed with them.

    The functions take a sample and the previous sample.
    """

    watch: Watch[Look]
    rows: Callable[[Look, Look | None], Iterable[Row]]
    looks: int = 1
    """Number of samples after which there are rows to show."""
    notes: Callable[[Look, Look | None], Sequence[str]] = _nothing
    """Notes to print, for example why there are no rows."""
    faults: Callable[[Look, Look | None], Sequence[str]] = _nothing
    """Parts of the store that could not be read; if the last sample has any, the exit code is 1."""


class UpperView(Protocol):
    """Factory of an upper layer's view; an entry point of the group ``cqstore.top``."""

    def __call__(
        self,
        root: Path,
        config: StoreConfig,
        form: str | None,
        conf: Path | None,
        limit: int,
        /,
    ) -> TopView[Any]:
        """Return a view with at most ``limit`` rows and one row for all others.

        ``form`` is the form of the metadata; without it, the broker's file ``conf`` determines it.
        """


RowOf = Annotated[
    TopBy,
    typer.Option(help="Rows to show: store facts, active topics, or consumer groups."),
]
Limit = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, help="Maximum number of topics or groups; the rest share one row."
    ),
]
GroupsForm = Annotated[
    str | None,
    typer.Option(
        metavar="json|v1|single|v2",
        help="Form of the metadata that the broker reads, if DIR has several (requires --by"
        " group). Default: the form that --config names.",
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Print one table and exit.")]
Interval = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", min=0.1, callback=bounded, help="Time between two samples, in seconds."
    ),
]


def top(
    root: Dir,
    by: RowOf = TopBy.FACT,
    limit: Limit = 20,
    form: GroupsForm = None,
    *,
    once: Once = False,
    interval: Interval = 2.0,
    config: ConfigFile = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Monitor a store that another process has open: offsets, rates, lag, checkpoint, sizes.

    With --by topic, rows show the messages and bytes that arrived since the previous sample. Topics
    that exceed --limit share one row. With --once, the command takes two samples.

    With --by group, rows show the groups with the largest lag: total offsets, lag, messages
    consumed per second, retry lag and dead letters. The command then opens the store for reading.
    The exit code is 1 if metadata cannot be read.

    It takes no lock and changes no byte. Press Ctrl-C to stop. Without a terminal, or with another
    format than table, it prints once.

    Examples:
        cqstore top DIR --by topic
        cqstore top DIR --by group --once --output json
    """
    settings = with_log_folder(read_config(config, root), commit_log)
    layout = detect(root, settings)
    if not (layout.has_log or layout.backends or exists(layout.paths.abort)):
        raise RefusedStoreError("no store here: neither commit log nor queues", path=root)
    if by is TopBy.GROUP:
        view = _upper_view(by)(root, settings, form, config, limit)
    elif form is None:
        view = _view(layout, by, kind, limit)
    else:
        raise typer.BadParameter("only allowed with --by group", param_hint="--form")

    def wait() -> None:
        time.sleep(interval)

    if once or kind is not OutputFormat.TABLE or not sys.stdout.isatty():
        is_whole = print_once(view, kind, wait)
    else:
        is_whole = show(view, Console(), wait)
    if not is_whole:
        raise typer.Exit(1)


def _view(layout: StoreLayout, by: TopBy, kind: OutputFormat, limit: int) -> TopView[WatchSample]:
    if by is TopBy.TOPIC:
        rows = partial(topic_rows, limit=limit)
        return TopView(StoreWatch(layout, by_topic=True), rows, 2, topic_notes)
    return TopView(StoreWatch(layout), narrow_facts if kind is OutputFormat.TABLE else facts)


def print_once(view: TopView[Any], kind: OutputFormat, wait: Callable[[], object]) -> bool:
    """Take as many samples as the view needs, with ``wait`` between them, and print the rows.

    Returns:
        Whether everything could be read.
    """
    before, look = None, view.watch.sample()
    for _ in range(view.looks - 1):
        wait()
        before, look = look, view.watch.sample()
    output(kind).rows(view.rows(look, before))
    faults = view.faults(look, before)
    for sentence in (*view.notes(look, before), *faults):
        note(sentence)
    return not faults


def _upper_view(by: TopBy) -> UpperView:
    """Return the view factory of an upper layer.

    Raises:
        RefusedStoreError: the package with the view is not installed.
    """
    for entry in entries(_GROUP):
        if entry.name == by:
            made: UpperView = entry.load()
            return made
    raise RefusedStoreError(f"the view --by {by} is not installed")


def narrow_facts(look: WatchSample, before: WatchSample | None = None) -> Iterator[Row]:
    """Yield one row per fact, see ``narrow``."""
    return narrow(facts(look, before))


def show(view: TopView[Look], console: Console, wait: Callable[[], object]) -> bool:
    """Show sample after sample, with ``wait`` in between, until Ctrl-C; the last one stays.

    Returns:
        Whether everything in the last sample could be read.
    """
    before: Look | None = None
    faults: Sequence[str] = ()
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            look = view.watch.sample()
            faults = view.faults(look, before)
            notes = map(Text, (*view.notes(look, before), *faults))
            rows = table(view.rows(look, before), console.width)
            live.update(Group(rows, *notes), refresh=True)
            before = look
            wait()
    return not faults


def narrow(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows that fit 80 columns: each part is named once, and when a database logged."""
    last = None
    for row in rows:
        part = str(row["part"])
        logged = _LOGGED.fullmatch(part)
        name = logged[1].lower() if logged else part
        if logged and name != last:
            yield _row(name, "as it logged at", logged[2].partition(".")[0])
        shown = "" if name == last or logged else name
        last = name
        fact, value = str(row["fact"]).removeprefix(f"{name}_"), row["value"]
        if isinstance(value, str):
            value = value.removesuffix("+00:00")
        yield {**row, "part": shown, "fact": fact, "value": value}


def facts(look: WatchSample, before: WatchSample | None = None) -> Iterator[Row]:
    """Yield one row per fact; with an earlier sample, also its growth rate."""
    now = datetime.fromtimestamp(look.time, UTC).isoformat(sep=" ", timespec="seconds")
    yield _row("store", "state", _state(look))
    yield _row("store", "looked at", now)
    yield from _log_facts(look, before)
    yield from _follower_facts(look, before)
    for level, offset in sorted(look.delay_offsets.items()):
        last = before.delay_offsets.get(level) if before is not None else None
        pace = _pace(look, before, offset, last)
        yield _row("delays", f"level {level} is delivered to", offset, pace)
    fields = look.checkpoint
    for label, stamp in (
        ("log on disk, s ago", fields.physic_msg_timestamp),
        ("file queues on disk, s ago", fields.logics_msg_timestamp),
        ("index on disk, s ago", fields.index_msg_timestamp),
    ):
        yield _row("checkpoint", label, round(look.time - stamp / 1000, 1) if stamp else None)
    yield _row("checkpoint", "confirm phy offset", fields.confirm_phy_offset)
    for name, size in look.folders.items():
        old = before.folders.get(name) if before is not None else None
        more = "" if size.whole else " (of the first)"
        yield _row(name, f"files{more}", size.files)
        pace = _pace(look, before, size.disk_bytes, old.disk_bytes if old else None)
        yield _row(name, f"on disk, bytes{more}", size.disk_bytes, pace)
    yield _row("disk", "used by the log's, percent", round(100 * look.log_disk_used_ratio, 1))
    yield _row("disk", "used by the queues', percent", round(100 * look.queue_disk_used_ratio, 1))
    for stat in look.queue_stats:
        yield _row(stat.part, stat.name, stat.value)


def _log_facts(look: WatchSample, before: WatchSample | None) -> Iterator[Row]:
    """Yield the rows of the commit log; rates are since the sample ``before``."""
    log = look.log
    if log is None:
        yield _row("log", "files", 0)
        return
    old = before.log if before is not None else None
    yield _row("log", "files", log.files)
    yield _row("log", "file size, bytes", log.file_size)
    yield _row("log", "min phy offset", log.min_phy_offset)
    pace = _pace(look, before, log.max_phy_offset, old.max_phy_offset if old else None)
    yield _row("log", "max phy offset", log.max_phy_offset, pace)
    pace = _pace(look, before, log.records, old.records if old else None)
    yield _row("log", "records since the first look", log.records, pace)
    lag = max(log.max_phy_offset - look.checkpoint.confirm_phy_offset, 0)
    yield _row("log", "lag of the checkpoint, bytes", lag)


def _follower_facts(look: WatchSample, before: WatchSample | None) -> Iterator[Row]:
    """Yield the rows of the follower, if the store belongs to one."""
    now = look.following
    if now is None:
        return
    old = before.following if before is not None else None
    yield _row("follower", "master", now.master)
    yield _row("follower", "state", _follower_state(now))
    yield _row("follower", "noted, s ago", _ago(look, now.time))
    pace = _pace(look, before, now.end, old.end if old else None)
    yield _row("follower", "phy offset", now.end, pace)
    yield _row("follower", "reported to the master", _known(now.reported))
    yield _row("follower", "master's max phy offset", _known(now.master_end))
    yield _row("follower", "lag, bytes", now.lag_bytes)
    stored = now.last_stored_ms / 1000
    lag = 0.0 if now.caught_up else _ago(look, stored)
    yield _row("follower", "lag, s", lag if stored else None)
    yield _row("follower", "connections", now.connections)
    pace = _pace(look, before, now.body_bytes, old.body_bytes if old else None)
    yield _row("follower", "received, bytes", now.body_bytes, pace)
    if now.metadata_time or now.metadata_fault:
        whole = _ago(look, now.metadata_time) if now.metadata_time else None
        yield _row("follower", "metadata whole, s ago", whole)
        yield _row("follower", "metadata", now.metadata_fault or "whole")


def _follower_state(of: Following) -> str:
    """Return the state of a follower in words."""
    if not exists(Path(f"/proc/{of.pid}")):
        return f"not running, or on another machine: process {of.pid} does not exist here"
    if not of.connected:
        return "not connected"
    if of.caught_up:
        return "caught up"
    return "verified" if of.verified else "asked"


def _known(phy_offset: int) -> int | None:
    return phy_offset if phy_offset >= 0 else None


def _ago(look: WatchSample, seconds: float) -> float:
    return round(max(look.time - seconds, 0), 1)


def _state(look: WatchSample) -> str:
    """Return a text that describes whether a process has the store open."""
    if look.opener is None:
        return "closed"
    if not look.opener:
        return "open, or not closed cleanly"
    if exists(Path(f"/proc/{look.opener}")):
        return f"open: process {look.opener}"
    why = f"process {look.opener} does not exist here"
    return f"not closed cleanly, or open on another machine: {why}"


def _pace(look: WatchSample, before: WatchSample | None, new: int, old: int | None) -> int | None:
    """Return the growth of a number per second; ``None`` without an earlier sample."""
    if before is None or old is None or look.seconds <= before.seconds:
        return None
    return round((new - old) / (look.seconds - before.seconds))


def _row(part: str, fact: str, value: object, per_second: int | None = None) -> Row:
    return {"part": part, "fact": fact, "value": value, "perSecond": per_second}
