"""The verb of ``cqstore follow``."""

import asyncio
import contextlib
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from replication.address import address
from replication.following.base import take_base
from replication.following.follower import Follower, Standing, Timing, Until, to_the_end
from replication.following.intake import VERIFY_TAIL_BYTES
from replication.settings import HaSettings
from replication.signals import ENDED_BY_SIGNAL, ended_by
from replication.tables.slave_synchronize import Intervals, SlaveSynchronize
from replication.tls import follower_context
from store.cli.options import Backend, ConfigFile, Dir, Format, note, read_config
from store.cli.output import OutputFormat, output, progress
from store.config import StoreConfig
from store.errors import StoreError
from store.journals.following import write_following
from store.paths import StorePaths
from store.service.finding.lay_out import lay_out
from store.service.finding.store_layout import choose_backends
from store.service.message_store import MessageStore

_NOTE_SECONDS = 2.0


def follow(
    master: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Replication port of the master.")
    ],
    root: Dir,
    *,
    base: Annotated[
        Path | None,
        typer.Option("--base", metavar="PATH", help="Copy of the master's log to begin with."),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            metavar="HOST:PORT",
            help="listenPort of the same master: topics, groups and offsets follow too.",
        ),
    ] = None,
    metadata_interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="With --broker: between two rounds.")
    ] = Intervals().tables,
    accept_lower_offsets: Annotated[
        bool,
        typer.Option(
            "--accept-lower-offsets", help="With --broker: take offsets that are lower there."
        ),
    ] = False,
    until_quiet: Annotated[
        bool, typer.Option("--until-quiet", help="End when the master has nothing more to send.")
    ] = False,
    until: Annotated[
        int | None,
        typer.Option(
            "--until", metavar="N", min=0, help="End when the log here ends at N or behind."
        ),
    ] = None,
    verify_tail: Annotated[
        int,
        typer.Option(metavar="BYTES", min=1, help="Of this log's end to compare when connecting."),
    ] = VERIFY_TAIL_BYTES,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="PEM", help="Who must have signed the master's certificate (cqstore feed's)."
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="PEM", help="Certificate and key to show to it.")
    ] = None,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Between two lines of how far it is.")
    ] = 10.0,
    config: ConfigFile = None,
    backend: Backend = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Receive the log of the running master at HOST:PORT into DIR, and build its queues.

    PORT is the master's haListenPort (10912 by RocketMQ's default). The master is not touched: it
    serves any slave. An empty DIR gets the master's last log file and what follows, as a slave of
    RocketMQ's does; older files never come. With --base it gets the closed log files of a copy
    first. With --broker (10911 by default) the master's topics, groups and offsets are written to
    DIR/config as a broker has them, and topics that are gone there are deleted here. Ctrl-C ends
    it, and it goes on where it was. Exit code 1 if the master's log does not continue this one:
    then nothing of it was appended.
    """
    host, port = address(master)
    asked = address(broker) if broker is not None else None
    timing = _timing(HaSettings.read(config))
    settings = read_config(config).as_master()  # only its master's bytes are added here
    if tls_cert is not None and tls_ca is None:
        raise typer.BadParameter("--tls-cert needs --tls-ca")
    tls = None if tls_ca is None else follower_context(tls_ca, tls_cert)
    if base is not None:
        _begin_with(base, root, settings, backend)
    with _open(root, settings, backend) as store:
        log = store.commit_log
        begin, is_new = log.max_phy_offset(), log.min_phy_offset() < 0
        _tell_begin(store, root, master)
        follower = Follower(
            store, host, port, timing=timing, verify_tail_bytes=verify_tail, tls=tls, tell=note
        )
        beside = None
        if asked is not None:
            beside = SlaveSynchronize(
                store, follower, *asked, intervals=Intervals(tables=metadata_interval),
                accept_lower_offsets=accept_lower_offsets, tell=note,
            )  # fmt: skip
        ended = asyncio.run(
            _run(follower, beside, _until(until, quiet=until_quiet), store, interval)
        )
        standing = follower.standing
        if is_new:
            begin = max(log.min_phy_offset(), 0)
        facts: dict[str, object] = {
            "master": master, "from": begin,
            "end": standing.end, "records": log.appended_records,
            "connections": standing.connections, "caughtUp": standing.caught_up,
        }  # fmt: skip
    output(kind).record(facts)
    if ended and (until_quiet or until is not None):  # the end that was waited for has not come
        raise typer.Exit(ENDED_BY_SIGNAL + ended)


def _tell_begin(store: MessageStore, root: Path, master: str) -> None:
    """Say what the opening cut, and where a new log begins."""
    opened = store.report
    if opened.dropped_bytes:
        kept = ", ".join(str(tail.path) for tail in opened.saved) or "no file: all were zeros"
        cut = f"cut {opened.dropped_bytes} bytes behind the end of the log"
        note(f"{root}: {cut}, kept in {kept}")
    if store.commit_log.min_phy_offset() < 0:
        note(f"{root}: no log yet: it begins with the last log file of {master}, older ones do"
             " not come")  # fmt: skip


def _open(root: Path, settings: StoreConfig, backend: str | None) -> MessageStore:
    with progress("opening") as tick:
        return MessageStore.open(root, settings, backend=backend, progress=tick)


async def _run(
    follower: Follower,
    beside: SlaveSynchronize | None,
    until: Until,
    store: MessageStore,
    interval: float,
) -> signal.Signals | None:
    """Follow until the end or a signal; return that."""
    others = [
        asyncio.create_task(_tell(follower, store, interval)),
        asyncio.create_task(_note(follower, store)),
    ]
    if beside is not None:
        others.append(asyncio.create_task(beside.run()))
    try:
        came = await ended_by(follower.run(until))
    finally:
        for other in others:
            other.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await other
    if beside is not None and not came:
        await beside.once()  # as new as the end of the log
    with contextlib.suppress(StoreError):
        write_following(store.paths, follower.figures())
    return came


async def _tell(follower: Follower, store: MessageStore, interval: float) -> None:
    """Say how far it is, again and again; nothing where nothing has changed."""
    before, said = follower.standing.end, ""
    while True:
        await asyncio.sleep(interval)
        standing = follower.standing
        line = line_of(standing, (standing.end - before) / interval, _age(store))
        if standing.end != before or line != said:
            note(line)
        before, said = standing.end, line


async def _note(follower: Follower, store: MessageStore) -> None:
    """Write down how far it is, again and again, for ``cqstore top`` in another process."""
    told = ""
    while True:
        try:
            await to_the_end(write_following, store.paths, follower.figures())
        except StoreError as exc:
            if str(exc) != told:
                told = str(exc)
                note(f"cqstore top will not show how far it is: {exc}")
        await asyncio.sleep(_NOTE_SECONDS)


def line_of(standing: Standing, bytes_per_second: float, age_seconds: float | None) -> str:
    """Return one line of how far a follower is.

    The wire does not say where the master's log ends, but that it has nothing more. A broker that
    is asked does.
    """
    line = f"followed to {standing.end}"
    if standing.caught_up:
        return f"{line}: 0 bytes behind"
    if age_seconds is not None:
        line += f", {bytes_per_second:,.0f} bytes/s"
        if standing.lag_bytes is not None:
            line += f", {standing.lag_bytes:,} bytes behind"
        line += f", last record stored {age_seconds:.1f} s ago"
    return line if standing.connected else f"{line}; not connected"


def _age(store: MessageStore) -> float | None:
    stored = store.commit_log.followed_timestamp
    return max(time.time() - stored / 1000, 0) if stored else None


def _begin_with(base: Path, root: Path, settings: StoreConfig, backend: str | None) -> None:
    """Take the base; a store that has a log has begun, and goes on."""
    if any(StorePaths(root).commit_log.glob("*")):
        note(f"{root}: has a log already and goes on with it; --base is passed over")
        return
    layout, settings = lay_out(root, settings, None, read_only=False)
    choose_backends(layout, settings, backend)  # what could not be opened then is not begun
    with progress("copying the base") as tick:
        size = take_base(base, root, tick)
    note(f"{root}: {size} bytes of log files copied; their records are checked, their queues built")


def _until(phy_offset: int | None, *, quiet: bool) -> Until:
    def is_enough(standing: Standing) -> bool:
        return (quiet and standing.caught_up) or (
            phy_offset is not None and standing.end >= phy_offset
        )

    return is_enough


def _timing(settings: HaSettings) -> Timing:
    return Timing(
        report=settings.ha_send_heartbeat_interval / 1000,
        housekeeping=settings.ha_housekeeping_interval / 1000,
    )
