"""preflight: run all checks of a folder.

Order: the layout and the settings first, because they may rule out the other checks; then one pass
over the queues; then the checks of the totals. Read-only: no lock is taken, no byte changes. So a
store that a process has open can be examined too; data that it was just writing is read again.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.broker.conversion.conversion import NextBroker, PlannedConversion
from cqstore.broker.lite_topics import LiteRules, lite_rules
from cqstore.migration.preflight.broker_conf_check import file_sizes, lint
from cqstore.migration.preflight.broker_rules import meaning
from cqstore.migration.preflight.combined import CombinedStart
from cqstore.migration.preflight.consumers_check import OffsetsCheck, not_compared
from cqstore.migration.preflight.folder_verdict import (
    IN_USE,
    READABLE,
    FolderFacts,
    inspect_folder,
    state_findings,
)
from cqstore.migration.preflight.limits import Extent, machine_findings
from cqstore.migration.preflight.lite_queues import LiteQueues
from cqstore.migration.preflight.machine_facts import MachineLimits
from cqstore.migration.preflight.metadata_check import table_findings
from cqstore.migration.preflight.names import QueueIds, TopicNames
from cqstore.migration.preflight.obstacles import Step, findings_of
from cqstore.migration.preflight.preflight_report import (
    NameCount,
    PreflightFinding,
    PreflightReport,
    Severity,
    by_severity,
    finding,
)
from cqstore.migration.preflight.queue_survey import (
    QueueCheck,
    QueueSurvey,
    SurveyProgress,
    Totals,
)
from cqstore.migration.preflight.topics_check import read_topic_table
from cqstore.migration.preflight.units import BatchQueues, UnitCheck
from cqstore.store.errors import StoreConfigError, StoreError, os_errors
from cqstore.store.path_kind import is_dir, is_file
from cqstore.store.paths import StorePaths
from cqstore.store.progress import noop
from cqstore.store.queue.backends import backend
from cqstore.store.queue.bulk import bulk_backend, bulk_names
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.delay_levels import unlike_levels
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.settings.broker_conf import BrokerConf
from cqstore.store.settings.broker_keys import Version, broker_keys, parse_version
from cqstore.store.settings.conf_notes import other_store
from cqstore.store.settings.config import StoreConfig

RELEASE = "5.5.1"
_MAX_PASSES = 3
_OF_A_WRITER = frozenset({
    "cannot-be-opened", "holes", "queues-damaged", "units-outside-log", "unreadable-queues",
})  # fmt: skip
"""Findings that a writing process may cause for a moment."""


def preflight(
    root: Path,
    config: StoreConfig | None = None,
    *,
    to: str = "rocksdb",
    broker_conf: Path | None = None,
    rocketmq_version: str = RELEASE,
    machine: MachineLimits | None = None,
    running: bool = False,
    without: Collection[AcceptedLoss] = (),
    accept_older_tables: bool = False,
    progress: SurveyProgress = noop,
) -> PreflightReport:
    """Check whether the queues in ``root`` can be moved, and list the problems. Changes nothing.

    Args:
        root: folder of the store (``storePathRootDir``).
        config: settings of the store. Default: the valid settings of ``broker_conf``.
        to: target backend, ``rocksdb`` or ``file``.
        broker_conf: configuration file of the broker to check.
        rocketmq_version: RocketMQ release that will open the store; its rules apply.
        machine: limits of the computer; for tests.
        running: also examine a store that a process has open, with the warning ``in-use``. Default:
            such a store is refused.
        without: data of the broker that may be left out, as for the switch.
        accept_older_tables: as for the switch.
        progress: called with the number of examined queues and the total number.

    Raises:
        StoreConfigError: ``to``, the version or the configuration file is invalid.
        StoreIOError: the configuration, or a folder of the store, cannot be read.
    """
    _refuse_unknown(to)
    version, (conf, values) = parse_version(rocketmq_version), _read(broker_conf)
    config = config or (conf.settings(root) if conf is not None else StoreConfig())
    limits, rules = machine or MachineLimits(), lite_rules(version, values)
    broker = NextBroker([to], config, without, accept_older_tables)
    with os_errors("examine the store", root):  # the path of errors that have none
        found = inspect_folder(root, config)
        examination = _Examination(root, config, found, to, limits, rules, progress)
        conversion = PlannedConversion(StorePaths(root), broker)
        findings = _folder_findings(root, found, to, conversion, values, running=running)
        findings += examination.of_open_store(findings, running=running)
    findings += _of_conf(root, conf, version, to, found)
    return examination.report(rocketmq_version, findings)


@dataclass(frozen=True, slots=True)
class Examined:
    """What a preflight found for a plan, and what it has read already."""

    report: PreflightReport
    conversion: PlannedConversion
    store: MessageStore | None
    """The store, open read-only; its units are not checked yet. ``None``: they are checked, because
    the store cannot be opened, has several backends, or is open in another process."""


@contextmanager
def examined(
    root: Path,
    config: StoreConfig,
    broker: NextBroker,
    progress: SurveyProgress = noop,
) -> Iterator[Examined]:
    """Run a preflight of a store, also of one that a process has open, and keep the store open.

    Raises:
        StoreConfigError, StoreIOError: as for ``preflight``.
    """
    root, to = root.absolute(), broker.backends[0]
    _refuse_unknown(to)
    version = parse_version(RELEASE)
    conversion = PlannedConversion(StorePaths(root), broker)
    with ExitStack() as closing:
        with os_errors("examine the store", root):
            found = inspect_folder(root, config)
            examination = _Examination(
                root, config, found, to, MachineLimits(), lite_rules(version, {}), progress
            )
            findings = _folder_findings(root, found, to, conversion, {}, running=True)
            findings += examination.of_open_store(findings, running=True, keep=closing)
        findings += _of_conf(root, None, version, to, found)
        report = examination.report(RELEASE, findings)
        yield Examined(report, conversion, examination.store)


def _folder_findings(
    root: Path, found: FolderFacts, to: str, conversion: PlannedConversion,
    values: Mapping[str, Any], *, running: bool,
) -> list[PreflightFinding]:  # fmt: skip
    """Return the findings about layout, state and tables, which need no open store."""
    state = state_findings(root, found, running=running)
    findings = [*findings_of(Step.PREFLIGHT, root, found, to, conversion), *state]
    if found.verdict in READABLE:
        findings += table_findings(StorePaths(root), to, values)
    return findings


def _refuse_unknown(to: str) -> None:
    """Refuse a target that is not a backend.

    Raises:
        StoreConfigError: it is none.
    """
    if to not in bulk_names():
        known = " or ".join(map(repr, bulk_names()))
        raise StoreConfigError(f"invalid target backend {to!r}: expected {known}")


def _read(path: Path | None) -> tuple[BrokerConf | None, dict[str, Any]]:
    """Return a configuration and its valid values; empty without a file."""
    if path is None:
        return None, {}
    conf = BrokerConf.read(path)
    return conf, conf.taken(broker_keys())


def _of_conf(
    root: Path, conf: BrokerConf | None, version: Version, to: str, found: FolderFacts
) -> Iterator[PreflightFinding]:
    """Yield findings about a configuration; without one, about the release."""
    if conf is None:
        yield from (each.at("--rocketmq") for each in meaning({}, version, to, None))
        return
    for sentence in other_store(conf.values, root, is_new=False):
        key = sentence.partition("=")[0]
        yield finding("conf-of-another-folder", Severity.INFO, f"{sentence}.", [key]).at(conf.path)
    folders = found.layout.log_folders if found.layout is not None else []
    with os_errors("examine the store", root):
        sizes = file_sizes(StorePaths(root), folders)
    yield from (each.at(conf.path) for each in lint(conf, version, to, found.verdict, sizes))


class _Examination:
    """The checks that need an open store: queues, log and tables."""

    def __init__(
        self,
        root: Path,
        config: StoreConfig,
        found: FolderFacts,
        to: str,
        machine: MachineLimits,
        lite: LiteRules | None,
        progress: SurveyProgress,
    ) -> None:
        self._progress = progress
        self._root = root
        self._config = config
        self._backends = found.layout.backends if found.layout is not None else []
        self._to = bulk_backend(to)
        self._machine = machine
        self._lite = lite
        self._verdict = found.verdict
        self._is_written = False
        self.store: MessageStore | None = None
        """The store that ``run`` has left open."""
        self.surveyed: str | None = None
        self.totals: Totals | None = None

    def report(self, version: str, findings: Sequence[PreflightFinding]) -> PreflightReport:
        """Return the report of ``findings``, which include those of this examination."""
        totals = self.totals
        return PreflightReport(
            root=str(self._root), to=self._to.name, rocketmq_version=version,
            layout=self._verdict.value, surveyed=self.surveyed,
            topics=totals.topics if totals else 0,
            queues=totals.queues if totals else 0,
            units=totals.units if totals else 0,
            findings=[each.at(self._root) for each in by_severity(findings)],
        )  # fmt: skip

    def of_open_store(
        self, known: Sequence[PreflightFinding], *, running: bool, keep: ExitStack | None = None
    ) -> list[PreflightFinding]:
        """Return the findings that need an open store, if it may be opened after those ``known``.

        ``running``: also beside a writing process. ``keep`` gets a store with one backend, see
        ``run``.
        """
        in_use = any(each.code == IN_USE for each in known)
        if self._verdict not in READABLE or (in_use and not running):
            return []
        if in_use:
            return self.beside_writer()
        return [*self.run(keep if len(self._backends) == 1 else None)]

    def beside_writer(self) -> list[PreflightFinding]:
        """Return the findings about a store that a process writes to.

        Findings that the process may have caused for a moment count only if every pass has them.
        """
        self._is_written = True
        findings: list[PreflightFinding] = []
        for _ in range(_MAX_PASSES):
            self.surveyed, self.totals = None, None
            findings = list(self.run())
            if not any(each.code in _OF_A_WRITER for each in findings):
                break
        return findings

    def run(self, keep: ExitStack | None = None) -> Iterator[PreflightFinding]:
        """Yield all findings; a store that cannot be opened is a finding too.

        With ``keep``, which closes the store later, no unit is read; there is one backend.
        """
        source = next((name for name in self._backends if name != self._to.name), self._to.name)
        # With double write, examine the source of the move whatever the settings prefer: missing
        # units are reported, not refused.
        beside = next((name for name in self._backends if name != source), self._to.name)
        prefer = {"combine_cq_prefer_cq_type": backend(beside).store_type()}
        config = self._config if keep is not None else self._config.model_copy(update=prefer)
        try:
            options = OpenOptions(read_only=True, backend=source, housekeeping=False)
            with ExitStack() as closing:
                store = open_served(MessageStore, self._root, config, options)
                (closing if keep is None else keep).enter_context(store)
                self.store = None if keep is None else store
                yield from self._of_store(store, source)
        except StoreError as exc:
            self.store = None
            sentence = f"The store cannot be read: {exc}."
            where = exc.path or self._root
            yield finding("cannot-be-opened", Severity.REFUSE, sentence).at(where)

    def _of_store(self, store: MessageStore, source: str) -> Iterator[PreflightFinding]:
        """Yield findings about queues, units, consumers and the limits of the machine."""
        yield from _damage(store)
        by_name: Mapping[str, ConsumeQueueStore] = {
            each.name: each for each in components_of(store).queues.backends()
        }
        queues = by_name[source]
        self.surveyed = source
        self.totals = Totals(queues.units_per_file)
        table, remarks = read_topic_table(components_of(store).paths)
        yield from remarks
        checks: list[QueueCheck] = [self.totals, TopicNames(self._to, self._config), QueueIds()]
        checks += [
            BatchQueues(queues), table,
            *(CombinedStart(queues, each) for each in by_name.values() if each is not queues),
        ]  # fmt: skip
        if self.store is None:
            log = components_of(store).log
            checks.append(UnitCheck(queues, log, self._to, is_written=self._is_written))
        if self._lite is not None:
            expirations = table.lite_expirations
            checks.append(LiteQueues(queues, components_of(store).log, expirations, self._lite))
        yield from QueueSurvey(queues, checks, self._progress).run()
        if self._is_written and queues.hides_unflushed:
            yield not_compared(
                Severity.INFO,
                "Consumer offsets are not compared while the broker runs: it keeps the newest units"
                " of its queues in memory.",
            )
        else:
            yield from OffsetsCheck(components_of(store).paths, queues).findings()
        yield from _levels(store, self._config)
        yield from machine_findings(self._extent(store, by_name), self._machine)

    def _extent(self, store: MessageStore, by_name: Mapping[str, ConsumeQueueStore]) -> Extent:
        """Return the amount of data to move, for the limits of the machine."""
        assert self.totals is not None
        paths, log = components_of(store).paths, components_of(store).log
        files = (each.describe().get("queue files") for each in by_name.values())
        log_folders = components_of(store).layout.log_folders
        return Extent(
            root=self._root,
            target=self._to,
            totals=self.totals,
            queue_files=sum(each for each in files if isinstance(each, int)),
            other_files=sum(map(_count_files, [*log_folders, paths.index])),
            log_bytes=max(log.max_phy_offset() - max(log.min_phy_offset(), 0), 0),
            rocksdb_memory_bytes=self._config.rocksdb_memory_bytes,
        )


def _count_files(folder: Path) -> int:
    return sum(is_file(path) for path in folder.iterdir()) if is_dir(folder) else 0


def _levels(store: MessageStore, config: StoreConfig) -> Iterator[PreflightFinding]:
    """Yield a finding if due times of delayed messages differ from these settings."""
    found = NameCount()
    with suppress(StoreError):  # unreadable queues are another finding
        for each in unlike_levels(store, config.message_delay_level, 0):
            found.add(
                f"{each.queue.topic}/{each.queue.queue_id}", level=each.level,
                waitsMs=each.in_queue_ms, bySettingsMs=each.by_settings_ms,
            )  # fmt: skip
    yield from found.finding(
        "delay-levels",
        Severity.REFUSE,
        "The delays of the newest delayed messages differ from messageDelayLevel: the switch, the"
        " rollback and follow refuse such settings. Pass the broker's settings with --config.",
    )


def _damage(store: MessageStore) -> Iterator[PreflightFinding]:
    """Yield findings of opening the store: damaged queues, and data after the end of the log."""
    report = store.report
    if report.queues_damaged:
        sentence = (
            "Queues have lost units or files: run cqstore recover, which rebuilds them from the"
            " log."
        )
        damaged = len(report.queues_damaged)
        yield finding("queues-damaged", Severity.REFUSE, sentence, queues=damaged)
    if report.last_exit_ok and report.dropped_bytes:
        yield finding(
            "log-tail", Severity.WARN,
            "There is data after the end of the commit log: a tail that RocketMQ has truncated but"
            " not erased, or damage. Run cqstore check.",
            bytes=report.dropped_bytes, logEnd=report.end_phy_offset,
        )  # fmt: skip
