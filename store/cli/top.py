"""``cqstore top``: a running store, looked at again and again from the outside."""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from store.cli.options import CommitLogFolder, ConfigFile, Dir, Format, read_config
from store.cli.output import OutputFormat, Row, output, table
from store.cli.top_topics import topic_rows
from store.errors import RefusedStoreError
from store.journals.following import Following
from store.service.layout.store_layout import detect
from store.service.metrics.watch import StoreWatch, WatchSample

_LOGGED = re.compile(r"as (\w+) logged (.+)")


class By(StrEnum):
    """What a row is about."""

    FACT = "fact"
    TOPIC = "topic"


def top(
    root: Dir,
    by: Annotated[By, typer.Option(help="A row a fact, or a topic that messages come to.")] = (
        By.FACT
    ),
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="With --by topic: so many, the rest in one.")
    ] = 20,
    *,
    once: Annotated[bool, typer.Option("--once", help="One table, then end.")] = False,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Between two looks.")
    ] = 2.0,
    config: ConfigFile = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Watch a store that another process has open: ends, rates, lag, checkpoint, sizes.

    With --by topic: messages and bytes that come to the busiest topics, and to all others in one
    row, since the look before; --once then waits for a second look.

    Takes no lock and changes no byte. Ctrl-C ends it; without a terminal, and with another output
    than a table, it looks once.
    """
    layout = detect(root, read_config(config, root), commit_log)
    if not (layout.has_log or layout.backends or layout.paths.abort.exists()):
        raise RefusedStoreError("no store here: neither commit log nor queues", path=root)
    watch = StoreWatch(layout, by_topic=by is By.TOPIC)
    if once or kind is not OutputFormat.TABLE or not sys.stdout.isatty():
        look, before = watch.sample(), None
        if by is By.TOPIC:
            time.sleep(interval)
            look, before = watch.sample(), look
        found = topic_rows(look, before, limit) if by is By.TOPIC else facts(look)
        fits = by is By.FACT and kind is OutputFormat.TABLE
        output(kind).rows(narrow(found) if fits else found)
    else:
        rows = partial(topic_rows, limit=limit) if by is By.TOPIC else narrow_facts
        show(watch, Console(), lambda: time.sleep(interval), rows)


Rows = Callable[[WatchSample, WatchSample | None], Iterable[Row]]
"""A look, and the one before it."""


def narrow_facts(look: WatchSample, before: WatchSample | None = None) -> Iterator[Row]:
    """Yield a row a fact, see ``narrow``."""
    return narrow(facts(look, before))


def show(
    watch: StoreWatch, console: Console, wait: Callable[[], object], rows: Rows = narrow_facts
) -> None:
    """Show look after look, with ``wait`` between them, until Ctrl-C; the last one stays."""
    before: WatchSample | None = None
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as view:
        while True:
            look = watch.sample()
            view.update(table(rows(look, before)), refresh=True)
            before = look
            wait()


def narrow(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows that fit eighty columns: each part is named once, and when a database logged."""
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
    """Yield a row a fact; with an earlier look, also how fast it grows."""
    now = datetime.fromtimestamp(look.time, UTC).isoformat(sep=" ", timespec="seconds")
    yield _row("store", "state", _state(look))
    yield _row("store", "looked at", now)
    yield from _log_facts(look, before)
    yield from _follower_facts(look, before)
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
    behind = max(log.max_phy_offset - look.checkpoint.confirm_phy_offset, 0)
    yield _row("log", "behind the checkpoint, bytes", behind)


def _follower_facts(look: WatchSample, before: WatchSample | None) -> Iterator[Row]:
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
    yield _row("follower", "behind the master, bytes", now.lag_bytes)
    stored = now.last_stored_ms / 1000
    behind = 0.0 if now.caught_up else _ago(look, stored)
    yield _row("follower", "behind the master, s", behind if stored else None)
    yield _row("follower", "connections", now.connections)
    pace = _pace(look, before, now.body_bytes, old.body_bytes if old else None)
    yield _row("follower", "received, bytes", now.body_bytes, pace)
    if now.metadata_time or now.metadata_fault:
        whole = _ago(look, now.metadata_time) if now.metadata_time else None
        yield _row("follower", "metadata whole, s ago", whole)
        yield _row("follower", "metadata", now.metadata_fault or "whole")


def _follower_state(of: Following) -> str:
    if not Path(f"/proc/{of.pid}").exists():
        return f"not running, or elsewhere: there is no process {of.pid} here"
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
    if look.opener is None:
        return "closed"
    if not look.opener:
        return "open, or not closed cleanly"
    if Path(f"/proc/{look.opener}").exists():
        return f"open: process {look.opener}"
    return f"not closed cleanly, or open elsewhere: there is no process {look.opener} here"


def _pace(look: WatchSample, before: WatchSample | None, new: int, old: int | None) -> int | None:
    """Return how much a number grew a second; ``None`` without an earlier one."""
    if before is None or old is None or look.seconds <= before.seconds:
        return None
    return round((new - old) / (look.seconds - before.seconds))


def _row(part: str, fact: str, value: object, per_second: int | None = None) -> Row:
    return {"part": part, "fact": fact, "value": value, "perSecond": per_second}
