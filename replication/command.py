"""The verb of ``cqstore follow``."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from replication.address import address
from replication.checking.rejoin import cut_to
from replication.checking.rejoin_command import tell_beyond
from replication.errors import BeyondEpochError
from replication.following.base import take_base
from replication.following.epoch_talk import Learner
from replication.following.follower import Follower
from replication.following.intake import VERIFY_TAIL_BYTES
from replication.following.standing import Standing, Timing, Until
from replication.running import followed
from replication.settings import HaSettings
from replication.signals import ENDED_BY_SIGNAL
from replication.tables.slave_synchronize import Intervals, SlaveSynchronize
from replication.tls import follower_context
from store.cli.options import Backend, ConfigFile, Dir, Format, note, read_config
from store.cli.output import OutputFormat, output, progress
from store.config import StoreConfig
from store.paths import StorePaths
from store.service.finding.lay_out import lay_out
from store.service.finding.store_layout import choose_backends
from store.service.message_store import MessageStore

_MOST_ID = (1 << 63) - 1


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
    controller: Annotated[
        bool,
        typer.Option("--controller", help="The master is under a controller; needs --broker-id."),
    ] = False,
    broker_id: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=_MOST_ID,
            help="With --controller: whom the master takes this for; no broker of its set.",
        ),
    ] = None,
    truncate: Annotated[
        bool,
        typer.Option(
            "--truncate", help="With --controller: cut what the master does not have, and keep it."
        ),
    ] = False,
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
    first. A master under a controller takes --controller and --broker-id, and sends an empty DIR
    all of its log. With --broker (10911 by default) the master's topics, groups and offsets are
    written to DIR/config as a broker has them, and topics that are gone there are deleted here.
    Ctrl-C ends it, and it goes on where it was. Exit code 1 if the master's log does not continue
    this one: then nothing of it was appended.
    """
    host, port = address(master)
    asked = address(broker) if broker is not None else None
    ha = HaSettings.read(config)
    learner = _learner(ha, controller=controller, broker_id=broker_id, truncate=truncate)
    settings = read_config(config)  # only its master's bytes are added here
    settings = settings.as_master() if learner is None else settings.as_learner()
    if tls_cert is not None and tls_ca is None:
        raise typer.BadParameter("--tls-cert needs --tls-ca")
    tls = None if tls_ca is None else follower_context(tls_ca, tls_cert)
    if base is not None:
        _begin_with(base, root, settings, backend)

    def followers(store: MessageStore) -> tuple[Follower, SlaveSynchronize | None]:
        follower = Follower(
            store, host, port, timing=_timing(ha), verify_tail_bytes=verify_tail, tls=tls,
            learner=learner, tell=note,
        )  # fmt: skip
        if asked is None:
            return follower, None
        return follower, SlaveSynchronize(
            store, follower, *asked, intervals=Intervals(tables=metadata_interval),
            accept_lower_offsets=accept_lower_offsets, tell=note,
        )  # fmt: skip

    def once() -> tuple[signal.Signals | None, dict[str, object]]:
        with _open(root, settings, backend) as store:
            _tell_begin(store, root, master, learner)
            return followed(store, *followers(store), is_enough, interval)

    is_enough = _until(until, quiet=until_quiet)
    try:
        ended, facts = once()
    except BeyondEpochError as exc:
        if not truncate or exc.phy_offset is None:
            raise
        _cut(root, exc, exc.phy_offset, settings)
        ended, facts = once()
    output(kind).record({"master": master, **facts})
    if ended and (until_quiet or until is not None):  # the end that was waited for has not come
        raise typer.Exit(ENDED_BY_SIGNAL + ended)


def _learner(
    ha: HaSettings, *, controller: bool, broker_id: int | None, truncate: bool
) -> Learner | None:
    if not controller and (broker_id is not None or truncate):
        raise typer.BadParameter("--broker-id and --truncate need --controller")
    if not controller:
        return None
    if broker_id is None:
        raise typer.BadParameter(
            "--controller needs --broker-id N, an id that no broker of the master's set has"
        )
    return Learner(broker_id, ha.sync_from_last_file)


def _cut(root: Path, why: BeyondEpochError, phy_offset: int, settings: StoreConfig) -> None:
    """Cut what goes on behind the place up to which the log is the master's."""
    note(f"{root}: {why.reason}")
    with progress("cutting") as tick:
        cut = cut_to(root, phy_offset, settings, tick)
    kept = ", ".join(str(tail.path) for tail in cut.saved)
    note(f"{root}: cut at {phy_offset}; what lay behind is kept in {kept}")
    tell_beyond(cut)


def _tell_begin(store: MessageStore, root: Path, master: str, learner: Learner | None) -> None:
    """Say what the opening cut, and where a new log begins."""
    opened = store.report
    if opened.dropped_bytes:
        kept = ", ".join(str(tail.path) for tail in opened.saved) or "no file: all were zeros"
        cut = f"cut {opened.dropped_bytes} bytes behind the end of the log"
        note(f"{root}: {cut}, kept in {kept}")
    if store.commit_log.min_phy_offset() >= 0:
        return
    if learner is None or learner.sync_from_last_file:
        note(f"{root}: no log yet: it begins with the last log file of {master}, older ones do"
             " not come")  # fmt: skip
    else:
        note(f"{root}: no log yet: it begins with the first log file of {master}")


def _open(root: Path, settings: StoreConfig, backend: str | None) -> MessageStore:
    with progress("opening") as tick:
        return MessageStore.open(root, settings, backend=backend, progress=tick)


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
