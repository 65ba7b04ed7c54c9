"""Offsets that an operator allows to lose: sound ones are refused before a byte changes.

The recovery decides on uncertain ones.
"""

from collections.abc import Callable, Collection

from cqstore.store.errors import CorruptionError, StoreConfigError, StoreError
from cqstore.store.journals.begun_cut import begun_cut
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.log_span import LogSpan, span_at
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.service.recovering.find_log_end import whole_records
from cqstore.store.service.recovering.recovery_report import RecoveryReport
from cqstore.store.settings.config import StoreConfig


def refuse_sound_places(
    layout: StoreLayout, config: StoreConfig, cut_at: int | None, pass_over: Collection[int],
    read_only: Callable[[], RecoveryReport | None],
) -> None:  # fmt: skip
    """Refuse to lose a sound record, or an offset outside the log.

    The caller holds the store's lock; nothing is changed. ``read_only`` opens the store read-only
    and returns the report, ``None`` if it cannot be opened. It is called only if no record begins
    at one of ``pass_over``: the log may end there, which only the queues show.

    Raises:
        StoreConfigError: the log is neither damaged at one of the offsets nor does it end there.
    """
    paths = layout.paths
    given = {*pass_over} | ({cut_at} if cut_at is not None else set())
    if not given or not layout.log_folders or _is_unfinished(paths):
        return
    log = CommitLog(layout.log_folders, config, read_only=True)
    try:
        log.load()
    except StoreError:  # the open reports it
        return
    try:
        crashed = exists(paths.abort) and not exists(paths.unopened)
        rules = ScanRules(config.check_crc_on_recover, config.force_verify_prop_crc)
        ends = [
            place
            for place in sorted(given)
            if not _refuse_sound(log, place, rules, given, crashed=crashed) and place in pass_over
        ]
        path = log.files.folder
    finally:
        log.close()
    if not ends or (report := read_only()) is None or report.damage is not None:
        return
    if (end := report.end_phy_offset) in ends:
        raise StoreConfigError(f"the log is not damaged at {end}: it ends there", path=path)


def _is_unfinished(paths: StorePaths) -> bool:
    """Return whether an unfinished opening has to change the log first."""
    return exists(paths.passing_over) or begun_cut(paths) is not None


def _refuse_sound(
    log: CommitLog, place: int, rules: ScanRules, given: Collection[int], *, crashed: bool
) -> bool:
    """Return whether ``place`` is a record that was skipped before; ``False``: none begins there.

    Raises:
        StoreConfigError: as for ``refuse_sound_places``.
    """
    low, high = max(log.min_phy_offset(), 0), log.max_phy_offset()
    not_there = f"the log is not damaged at {place}"
    path = log.files.folder
    if not low <= place <= high or high == low:
        raise StoreConfigError(f"{not_there}: its files span {low} to {high}", path=path)
    within = min(place, high - 1)
    try:
        if crashed:
            span = span_at(log, within, rules, lambda blocks: whole_records(log, blocks))
        else:
            span = span_at(log, within, rules)
    except CorruptionError as exc:
        if exc.phy_offset is None or exc.phy_offset in given:
            return False
        raise StoreConfigError(
            f"{not_there}: it ends at {exc.phy_offset}, or is damaged there", path=path
        ) from exc
    if place < high and span is not None and not _is_given_up(log, span, place):
        raise StoreConfigError(f"{not_there}, which is inside {span}", path=path)
    return place < high and span is not None


def _is_given_up(log: CommitLog, span: LogSpan, place: int) -> bool:
    """Return whether the damaged record at ``place`` was skipped before."""
    if span.record is None or span.start != place:
        return False
    return StoredMessage(log.view(place, span.record.size), place).is_passed_over
