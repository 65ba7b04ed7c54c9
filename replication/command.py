"""The verb of ``cqstore follow``."""

import asyncio
import contextlib
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from replication.base import take_base
from replication.follower import Follower, Standing, Timing, Until
from replication.intake import VERIFY_TAIL_BYTES
from replication.settings import HaSettings
from store.cli.options import Backend, ConfigFile, Dir, Format, note, read_config
from store.cli.output import OutputFormat, output, progress
from store.config import BrokerRole, StoreConfig
from store.paths import StorePaths
from store.service.finding.lay_out import lay_out
from store.service.finding.store_layout import choose_backends
from store.service.message_store import MessageStore

_ENDED_BY_SIGNAL = 128
_MOST_PORT = 65535


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
    first. Ctrl-C ends it, and it goes on where it was. Exit code 1 if the master's log does not
    continue this one: then nothing of it was appended.
    """
    host, port = _address(master)
    timing = _timing(HaSettings.read(config))
    settings = _settings(config)
    if base is not None:
        _begin_with(base, root, settings, backend)
    with _open(root, settings, backend) as store:
        log = store.commit_log
        begin, is_new = log.max_phy_offset(), log.min_phy_offset() < 0
        _tell_begin(store, root, master)
        follower = Follower(
            store, host, port, timing=timing, verify_tail_bytes=verify_tail, tell=note
        )
        ended_by = asyncio.run(_run(follower, _until(until, quiet=until_quiet), store, interval))
        standing = follower.standing
        if is_new:
            begin = max(log.min_phy_offset(), 0)
        facts: dict[str, object] = {
            "master": master, "from": begin,
            "end": standing.end, "records": log.appended_records,
            "connections": standing.connections, "caughtUp": standing.caught_up,
        }  # fmt: skip
    output(kind).record(facts)
    if ended_by and (until_quiet or until is not None):  # the end that was waited for has not come
        raise typer.Exit(_ENDED_BY_SIGNAL + ended_by)


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
    follower: Follower, until: Until, store: MessageStore, interval: float
) -> signal.Signals | None:
    """Follow until the end or a signal; return that."""
    loop = asyncio.get_running_loop()
    came: list[signal.Signals] = []
    task = asyncio.create_task(follower.run(until))

    def stop(number: signal.Signals) -> None:
        came.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    telling = asyncio.create_task(_tell(follower, store, interval))
    try:
        await task
    except asyncio.CancelledError:
        if not came:
            raise
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling
    return came[0] if came else None


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


def line_of(standing: Standing, bytes_per_second: float, age_seconds: float | None) -> str:
    """Return one line of how far a follower is.

    The wire does not say where the master's log ends, but that it has nothing more.
    """
    line = f"followed to {standing.end}"
    if standing.caught_up:
        return f"{line}: 0 bytes behind"
    if age_seconds is not None:
        line += f", {bytes_per_second:,.0f} bytes/s, last record stored {age_seconds:.1f} s ago"
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


def _address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; an IPv6 address stands in brackets."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:  # where an address without brackets ends cannot be told
        host = ""
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) <= _MOST_PORT:
        raise typer.BadParameter(f"a master is HOST:PORT or [IPV6]:PORT, not {text!r}")
    return host, int(port)


def _settings(config: Path | None) -> StoreConfig:
    """Return the settings; those of a slave, too, for only its master's bytes are added here."""
    settings = read_config(config)
    if settings.broker_role is BrokerRole.SLAVE:
        settings = settings.model_copy(update={"broker_role": BrokerRole.ASYNC_MASTER})
    return settings


def _timing(settings: HaSettings) -> Timing:
    return Timing(
        report=settings.ha_send_heartbeat_interval / 1000,
        housekeeping=settings.ha_housekeeping_interval / 1000,
    )
