"""RecoveryReport: what the open of a store found, and what it did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cqstore.store.errors import CorruptionError, StoreError
from cqstore.store.queue.facts import QueueDamage, QueueRestart
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.layout.file_notes import FileNote
from cqstore.store.service.recovering.find_log_end import SavedTail
from cqstore.store.service.recovering.pass_over import PassedOver


@dataclass(slots=True)
class RecoveryReport:
    """Findings and actions of the open of a store."""

    last_exit_ok: bool
    read_only: bool
    start_phy_offset: int = 0
    """Where the scan began, in bytes from the start of the log."""
    end_phy_offset: int = 0
    """The end of the log."""
    scanned_records: int = 0
    scanned_bytes: int = 0
    dispatched_units: int = 0
    dropped_bytes: int = 0
    """Bytes after the end, up to the last byte that was not zero."""
    first_bad: CorruptionError | None = None
    """Why the log ends at this offset, if there is data after its end."""
    damage: CorruptionError | None = None
    """Read-only: the first damage inside the log, which prevents opening it for writing."""
    saved: list[SavedTail] = field(default_factory=list)
    watermarks: dict[str, int] = field(default_factory=dict)
    """Backend → phy offset up to which it certainly had every record; read-only: empty."""
    passed_over: list[PassedOver] = field(default_factory=list)
    """Damaged records that were skipped."""
    undispatched_from: int | None = None
    """Read-only: the first record that was dispatched before a clean stop and has no unit."""
    queues_cut: int = 0
    index_files_cut: int = 0
    index_dropped: str = ""
    """Why the index was moved away and rebuilt."""
    notes: Sequence[FileNote] = ()
    """Notes on unusual files, which are not damage."""
    index_left_out: StoreError | None = None
    """Read-only: why the index cannot be read; an opening for writing would rebuild it."""
    written_since: Mapping[str, int] = field(default_factory=dict)
    """Backend that was left behind → phy offset up to which another program wrote to it."""
    unfinished_rebuild: bool = False
    """Read-only: single queues were being rebuilt and are incomplete."""
    queues_mended: Sequence[QueueKey] = ()
    """Damaged queues that were rebuilt from the log."""
    queues_damaged: Sequence[QueueDamage] = ()
    """Damaged queues that were not rebuilt; reading returns holes for missing units."""
    cut_at: int | None = None
    """Phy offset at which a requested cut ended the log."""
    restarts: list[QueueRestart] = field(default_factory=list)
    """Queues of which the log has several incarnations; the last one is used."""

    @property
    def needed(self) -> bool:
        """Return whether there was anything to recover."""
        return bool(self.dropped_bytes or self.is_incomplete)

    @property
    def is_incomplete(self) -> bool:
        """Return whether there was more to recover than bytes after the end of the log."""
        return bool(
            not self.last_exit_ok
            or self.damage
            or self.cut_at is not None
            or self.passed_over
            or self.dispatched_units
            or self.queues_cut
            or self.index_files_cut
            or self.index_dropped
            or self.queues_mended
            or self.queues_damaged
            or self.unfinished_rebuild
        )
