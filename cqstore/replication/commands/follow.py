"""The command ``cqstore follow``."""

import signal
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import typer

from cqstore.cli.new_store import nothing_half_made
from cqstore.cli.options import Backend, ConfigFile, Dir, Format, about_end, note, read_config
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.replication.address import address
from cqstore.replication.commands.ha_rejoin import report_offsets_beyond
from cqstore.replication.commands.running_follower import followed
from cqstore.replication.endpoint import find_host
from cqstore.replication.errors import BeyondEpochError
from cqstore.replication.follow.base_copy import copy_base
from cqstore.replication.follow.epoch_protocol import Learner
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import FollowerProgress, Timing, Until
from cqstore.replication.follow.log_receiver import VERIFY_TAIL_BYTES
from cqstore.replication.follow.quiet_deadline import QuietDeadline
from cqstore.replication.follow_options import (
    AcceptLowerOffsets,
    Base,
    Broker,
    BrokerId,
    Controller,
    Interval,
    Master,
    MetadataInterval,
    QuietTimeout,
    TlsCa,
    TlsCert,
    Truncate,
    UntilOffset,
    UntilQuiet,
    VerifyTail,
)
from cqstore.replication.ha.rejoin import cut_to
from cqstore.replication.ha_settings import HaSettings
from cqstore.replication.signals import ENDED_BY_SIGNAL
from cqstore.replication.synchronize.slave_synchronize import Intervals, SlaveSynchronize
from cqstore.replication.tls import follower_context
from cqstore.store.path_kind import matching
from cqstore.store.paths import StorePaths
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.layout.store_layout import choose_backends, refuse_log_elsewhere
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.settings.config import StoreConfig

_ROUND_SECONDS = Intervals().tables
_QUIET_SECONDS = 600.0


def follow(
    master: Master,
    root: Dir,
    *,
    base: Base = None,
    broker: Broker = None,
    metadata_interval: MetadataInterval = None,
    accept_lower_offsets: AcceptLowerOffsets = False,
    until_quiet: UntilQuiet = False,
    quiet_timeout: QuietTimeout = None,
    until: UntilOffset = None,
    verify_tail: VerifyTail = VERIFY_TAIL_BYTES,
    controller: Controller = False,
    broker_id: BrokerId = None,
    truncate: Truncate = False,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    interval: Interval = 10.0,
    config: ConfigFile = None,
    backend: Backend = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Replicate the log of the running master at HOST:PORT to DIR and build its queues.

    PORT is haListenPort (10912 in RocketMQ). The master needs no changes. An empty DIR starts with
    the closed files of --base, else with the master's last log file (under a controller, with all).
    Ctrl-C ends the command; the next call continues. Exit code 1 if --quiet-timeout expires, or if
    the master's log does not continue that of DIR; then nothing is appended.

    Examples:
        cqstore follow broker-a:10912 DIR --broker broker-a:10911
        cqstore follow broker-a:10912 DIR --backend rocksdb --until-quiet
    """
    place = address(master)
    broker_address = _broker_address(broker, metadata_interval, accept_lower_offsets)
    end = _End.given(until, quiet_timeout, until_quiet=until_quiet)
    ha = HaSettings.read(config)
    learner = _learner(ha, controller=controller, broker_id=broker_id, truncate=truncate)
    rounds, tls = Intervals(tables=metadata_interval or _ROUND_SECONDS), tls_of(tls_ca, tls_cert)
    tables = _Tables(broker_address, rounds, accept_lower_offsets)
    source = _MasterSource(master, place, _timing(ha), verify_tail, tls, learner, tables)
    settings = _settings(config, root, learner)
    _find_hosts(place, broker_address)
    with nothing_half_made(root, settings, new=True):
        _begin_with(base, root, settings, backend)
        ended, facts, late = _Run(root, settings, backend, source, end, interval).run(cut=truncate)
    output(kind).record({"master": master, **facts})
    _end_late(master, late, ended if until_quiet or until is not None else None)


@dataclass(frozen=True, slots=True)
class _Tables:
    """The master's metadata to replicate: from which broker and how often."""

    broker: tuple[str, int] | None
    """Address of the broker; ``None``: replicate no metadata."""
    intervals: Intervals
    accept_lower_offsets: bool


@dataclass(frozen=True, slots=True)
class _MasterSource:
    """The master to follow, and the settings of the connection."""

    master: str
    """The address as the operator wrote it."""
    place: tuple[str, int]
    timing: Timing
    verify_tail: int
    tls: ssl.SSLContext | None
    learner: Learner | None
    tables: _Tables

    def followers(self, store: MessageStore) -> tuple[Follower, SlaveSynchronize | None]:
        """Return the follower of the log and the follower of the metadata, if any."""
        follower = Follower(
            store, *self.place, timing=self.timing, verify_tail_bytes=self.verify_tail,
            tls=self.tls, learner=self.learner, on_event=note,
        )  # fmt: skip
        tables = self.tables
        if tables.broker is None:
            return follower, None
        return follower, SlaveSynchronize(
            store, follower, *tables.broker, intervals=tables.intervals,
            accept_lower_offsets=tables.accept_lower_offsets, on_event=note,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _End:
    """When to stop following; with both fields ``None``: never."""

    phy_offset: int | None
    quiet_timeout: float | None
    """Follow until the master is quiet, or until this many seconds pass without progress."""

    @classmethod
    def given(cls, until: int | None, quiet_timeout: float | None, *, until_quiet: bool) -> Self:
        """Return the end that the options describe.

        Raises:
            BadParameter: a timeout is given without ``until_quiet``.
        """
        if not until_quiet and quiet_timeout is not None:
            raise typer.BadParameter("--quiet-timeout needs --until-quiet")
        return cls(until, (quiet_timeout or _QUIET_SECONDS) if until_quiet else None)

    def of(self, store: MessageStore) -> tuple[Until, QuietDeadline | None]:
        """Return the predicate that ends following, and the deadline if there is a timeout."""
        if self.quiet_timeout is None:
            return self._is_reached, None
        deadline = QuietDeadline(components_of(store).log, self.quiet_timeout)

        def is_enough(now: FollowerProgress) -> bool:
            return now.caught_up or self._is_reached(now) or deadline.is_over(now)

        return is_enough, deadline

    def _is_reached(self, now: FollowerProgress) -> bool:
        return self.phy_offset is not None and now.end >= self.phy_offset


_Outcome = tuple[signal.Signals | None, dict[str, object], str]
"""Signal that ended the run, results, and why the master did not become quiet in time."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One call of ``cqstore follow``: the store, the master to follow, and when to stop."""

    root: Path
    settings: StoreConfig
    backend: str | None
    source: _MasterSource
    end: _End
    interval: float

    def once(self) -> _Outcome:
        """Open the store and follow; return the outcome."""
        with _open(self.root, self.settings, self.backend) as store:
            _report_start(store, self.root, self.source.master, self.source.learner)
            follower, tables = self.source.followers(store)
            is_enough, deadline = self.end.of(store)
            ended, facts = followed(store, follower, tables, is_enough, self.interval)
            if deadline is None or ended or not deadline.is_past:
                return ended, facts, ""
            return ended, facts, deadline.reason(follower.progress)

    def run(self, *, cut: bool) -> _Outcome:
        """Follow; with ``cut``, truncate a log that continues after the master's, and retry."""
        try:
            return self.once()
        except BeyondEpochError as exc:
            if not cut or exc.phy_offset is None:
                raise
            _cut(self.root, exc, exc.phy_offset, self.settings)
        return self.once()


def _settings(config: Path | None, root: Path, learner: Learner | None) -> StoreConfig:
    """Return the settings to open the store with.

    Raises:
        StoreConfigError: the settings are invalid.
        RefusedStoreError: the settings place the log outside of ``root``.
    """
    given = read_config(config, root, is_new=True)  # only bytes from the master are added
    followed = given.without_schedule()
    settings = followed.as_master() if learner is None else followed.as_learner()
    refuse_log_elsewhere(root, settings, config, unless_named=True)
    return settings


def tls_of(ca: Path | None, cert: Path | None) -> ssl.SSLContext | None:
    """Return the TLS context of the options; ``None``: no TLS.

    Raises:
        typer.BadParameter: ``cert`` is given without ``ca``.
    """
    if cert is not None and ca is None:
        raise typer.BadParameter("--tls-cert needs --tls-ca")
    return None if ca is None else follower_context(ca, cert)


def _learner(
    ha: HaSettings, *, controller: bool, broker_id: int | None, truncate: bool
) -> Learner | None:
    """Return the learner that the options describe; ``None`` without a controller.

    Raises:
        typer.BadParameter: options are missing or contradict each other.
    """
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
    """Truncate the log at ``phy_offset``, up to which it equals the master's."""
    note(f"{root}: {why.reason}")
    with progress("cutting", about_end(root, settings)) as tick:
        cut = cut_to(root, phy_offset, settings, tick)
    kept = ", ".join(str(tail.path) for tail in cut.saved)
    note(f"{root}: cut at {phy_offset}; the records after it are kept in {kept}")
    report_offsets_beyond(cut)


def _report_start(store: MessageStore, root: Path, master: str, learner: Learner | None) -> None:
    """Print how much the opening cut, and where a new log begins."""
    opened = store.report
    if opened.dropped_bytes:
        kept = ", ".join(str(tail.path) for tail in opened.saved)
        cut = f"cut {opened.dropped_bytes} bytes after the end of the log"
        note(f"{root}: {cut}, " + (f"kept in {kept}" if kept else "not kept: all were zero"))
    if store.min_phy_offset() >= 0:
        return
    if learner is None or learner.sync_from_last_file:
        note(
            f"{root}: new log, starting with the last log file of {master}; older files are not"
            " copied"
        )
    else:
        note(f"{root}: new log, starting with the first log file of {master}")


def _open(root: Path, settings: StoreConfig, backend: str | None) -> MessageStore:
    with progress("opening", about_end(root, settings)) as tick:
        options = OpenOptions(backend=backend, progress=tick)
        return open_served(MessageStore, root, settings, options)


def _broker_address(
    broker: str | None,
    metadata_interval: float | None,
    accept_lower_offsets: bool,  # noqa: FBT001
) -> tuple[str, int] | None:
    """Return the address of the broker that provides the metadata; ``None``: no metadata.

    Raises:
        typer.BadParameter: an option for metadata is given without ``broker``.
    """
    if broker is not None:
        return address(broker, "--broker")
    if metadata_interval is not None or accept_lower_offsets:
        raise typer.BadParameter("--metadata-interval and --accept-lower-offsets need --broker")
    return None


def _end_late(master: str, late: str, ended: signal.Signals | None) -> None:
    """Exit with a nonzero code if the run did not end as requested.

    ``late`` is the reason why the master did not become quiet in time, or empty. ``ended`` is the
    signal that ended the run before that.

    Raises:
        typer.Exit: one of them is set.
    """
    if late:
        note(f"{master}: {late}")
        raise typer.Exit(1)
    if ended:
        raise typer.Exit(ENDED_BY_SIGNAL + ended)


def _find_hosts(master: tuple[str, int], broker: tuple[str, int] | None) -> None:
    """Resolve both host names before anything is created.

    Raises:
        StoreIOError: a host name cannot be resolved.
    """
    find_host(*master)
    if broker is not None:
        find_host(*broker, "the broker")


def _begin_with(base: Path | None, root: Path, settings: StoreConfig, backend: str | None) -> None:
    """Copy the base if one is given and the store has no log yet."""
    if base is None:
        return
    refuse_log_elsewhere(root, settings)  # the base becomes its default folder
    if matching(StorePaths(root).commit_log, "*"):
        note(f"{root}: already has a log, which is continued; --base is ignored")
        return
    layout, settings = resolve_layout(root, settings, read_only=False)
    choose_backends(layout, settings, backend)  # fail before the copy if a backend cannot be opened
    with progress("copying the base", about_end(base, StoreConfig())) as tick:
        size = copy_base(base, root, tick)
    note(f"{root}: copied {size} bytes of log files; checking records and building queues")


def _timing(settings: HaSettings) -> Timing:
    return Timing(
        report=settings.ha_send_heartbeat_interval / 1000,
        housekeeping=settings.ha_housekeeping_interval / 1000,
    )
