"""Repair of the findings of a check: planned first and then executed.

The log is the source of truth: queues and index are rebuilt from it, a torn tail is recovered. A
log with damage before valid records is cut only if the operator allows it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from cqstore.store.errors import CorruptionError, RefusedStoreError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.layout.store_layout import detect, found_sizes
from cqstore.store.service.maintenance.check import CheckFinding
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.obstacles import OF_QUEUES, Obstacle, ObstacleKind, clear
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.service.recovering.find_log_end import valid_record_behind
from cqstore.store.service.recovering.replacement import Rebuild
from cqstore.store.settings.config import StoreConfig

MAX_SINGLE = 16
"""Limit of queues that are rebuilt one by one; if there are more, all are, in one pass."""


@dataclass(slots=True)
class RepairPlan:
    """The steps of a repair: ``obstacles`` are cleared first, then the fields in their order."""

    cut_at: int | None = None
    """Phy offset of the first damage of the log."""
    lost_bytes: int = 0
    """Bytes of the log from that offset on."""
    lost_records: int = 0
    """Valid records after that offset."""
    recover: bool = False
    """The store was not stopped cleanly, or an operation is unfinished."""
    index: bool = False
    """The index is damaged: it is rebuilt."""
    queues: list[QueueKey] = field(default_factory=list)
    """Damaged queues: rebuilt one by one, or with more than ``MAX_SINGLE`` all in one pass."""
    all_queues: bool = False
    """There is damage that only a rebuild of all queues mends."""
    obstacles: list[Obstacle] = field(default_factory=list)
    """Damage that prevents opening the store."""
    beyond: list[str] = field(default_factory=list)
    """Damage that cannot be mended here."""

    def __bool__(self) -> bool:
        of_queues = self.queues or self.all_queues
        return bool(
            self.cut_at is not None or self.recover or self.index or of_queues or self.obstacles
        )

    @property
    def rebuilds_all(self) -> bool:
        """Return whether all queues are rebuilt, in one pass."""
        of_queues = (each.kind in OF_QUEUES for each in self.obstacles)
        return self.all_queues or len(self.queues) > MAX_SINGLE or any(of_queues)

    def moved_to(self, root: Path, target: Path) -> Self:
        """Return the plan for ``target``, a copy of ``root`` made by ``copy_store``."""

        def place(each: Obstacle) -> Path:
            if each.kind is ObstacleKind.LOG_FILE:
                return target / "commitlog" / each.path.name
            inside = each.path.is_relative_to(root)
            return target / each.path.relative_to(root) if inside else each.path

        return replace(self, obstacles=[replace(each, path=place(each)) for each in self.obstacles])

    def steps(self) -> Iterator[str]:
        """Yield each step as a sentence, in the order of ``carry_out``."""
        for obstacle in self.obstacles:
            yield f"{obstacle.path}: {obstacle.kind.value}"
        if self.cut_at is not None:
            yield (
                f"cut the log at {self.cut_at}: the {self.lost_bytes} bytes after it are lost, with"
                f" {self.lost_records} valid records (--cut-at {self.cut_at}){self.instead()}"
            )
        if self.recover:
            yield "recover the store, as the next open would"
        if self.index:
            yield "rebuild the index"
        if len(self.queues) > MAX_SINGLE:
            yield f"rebuild all queues ({len(self.queues)} are damaged)"
        elif self.all_queues:
            yield "rebuild all queues from the log"
        elif not self.rebuilds_all:
            for key in self.queues:
                yield f"rebuild queue {key.queue_id} of topic {key.topic!r}"
        for problem in self.beyond:
            yield f"cannot repair: {problem}"

    def instead(self) -> str:
        """Return an alternative that loses less than a cut, as the end of a sentence."""
        if self.obstacles:  # to skip a record, the store must be opened
            return ""
        return f"; to lose only that record, first run cqstore recover --pass-over {self.cut_at}"


def plan_repair(
    store: MessageStore, findings: Iterable[CheckFinding], obstacles: Iterable[Obstacle] = ()
) -> RepairPlan:
    """Plan the repair of ``findings``; ``store`` is open read-only, bypassing ``obstacles``."""
    plan = RepairPlan(recover=store.report.needed, obstacles=list(obstacles))
    queues: dict[QueueKey, None] = {}
    for finding in findings:
        if not finding.damage:
            continue
        path = Path(finding.path) if finding.path else None
        if finding.all_queues:
            plan.all_queues = True
        elif finding.queue is not None:
            queues[finding.queue] = None
        elif path is not None and path.is_relative_to(components_of(store).paths.index):
            plan.index = True
        elif path is not None and any(
            map(path.is_relative_to, components_of(store).layout.log_folders)
        ):
            if plan.cut_at is None and finding.phy_offset is not None:
                plan.cut_at = finding.phy_offset
        else:
            plan.beyond.append(f"{finding.problem} ({finding.path})")
    plan.queues = list(queues)
    if plan.cut_at is not None:
        log = components_of(store).log
        plan.lost_bytes = log.max_phy_offset() - plan.cut_at
        plan.lost_records = sum(1 for _ in _records_behind(log, plan.cut_at))
    return plan


def _records_behind(log: CommitLog, damaged_at: int) -> Iterator[int]:
    """Yield the starts of the valid records after damage."""
    at = valid_record_behind(log, damaged_at)
    while at is not None:
        start, at = at, None
        try:
            for record in log.scan(start, rules=ScanRules(check_crc=True)):
                yield record.phy_offset
        except CorruptionError as exc:
            at = valid_record_behind(log, start if exc.phy_offset is None else exc.phy_offset)


def check_cut(root: Path, plan: RepairPlan, cut_at: int | None) -> None:
    """Refuse a repair that must cut the log if the operator has not allowed it.

    Raises:
        RefusedStoreError: ``cut_at`` is not the offset of the damage.
    """
    if plan.cut_at is not None and cut_at != plan.cut_at:
        raise RefusedStoreError(
            f"the log is damaged at {plan.cut_at}: nothing was repaired. To give up the"
            f" {plan.lost_records} valid records after it, pass --cut-at"
            f" {plan.cut_at}{plan.instead()}",
            path=root,
        )


def carry_out(
    root: Path,
    config: StoreConfig,
    plan: RepairPlan,
    cut_at: int | None,
    progress: Callable[[int], None],
) -> None:
    """Execute ``plan`` on the store in ``root``.

    Raises:
        RefusedStoreError: as for ``check_cut``; nothing was done.
        StoreError: as for opening.
    """
    check_cut(root, plan, cut_at)
    rebuild = Rebuild.INDEX if plan.index else Rebuild.NOTHING
    if plan.rebuilds_all:
        rebuild |= Rebuild.QUEUES
    if plan.obstacles:
        size = config.mapped_file_size_commit_log
        layout = detect(root, config)
        sizes = found_sizes(layout, config)
        clear(layout, sizes.get("mapped_file_size_commit_log", size), plan.obstacles)
    with MessageStore.open(
        root,
        config,
        recovery=RecoveryOptions(cut_at=plan.cut_at, rebuild=rebuild),
        housekeeping=False,
        progress=progress,
    ) as store:
        if Rebuild.QUEUES not in rebuild:
            for key in plan.queues:
                store.rebuild_queues(*key, progress)
