"""Compares two sides: logs, undispatched records, and the brokers' tables."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cqstore.broker.metadata.differences import BrokerTables, compare_tables, read_tables
from cqstore.replication.ha.check_report import Checked
from cqstore.replication.ha.diverged_tail import tail_of
from cqstore.replication.ha.fetched import (
    ByteRange,
    FetchedSide,
    Master,
    fetch,
    last_file_begin,
    refuse_other_files,
)
from cqstore.replication.ha.logs import compare_logs, span
from cqstore.replication.ha.sides import (
    LogSide,
    StoreSide,
    is_same_folder,
    open_side,
    readable,
    refuse_same_log,
)
from cqstore.store.errors import RefusedStoreError, StoreIOError
from cqstore.store.progress import Progress, noop
from cqstore.store.settings.config import StoreConfig

MasterAddress = Path | Master
"""Location of a side: a folder, or a running master."""
SideConfigs = StoreConfig | tuple[StoreConfig, StoreConfig]
"""Settings for both sides, or for each."""


@dataclass(frozen=True, slots=True)
class CheckScope:
    """How much of the two sides is compared."""

    last_bytes: int | None = None
    """Minimum number of last bytes to compare with a running master's log; ``None``: its last file.
    """
    folder: Path | None = None
    """Folder for bytes fetched from a master; ``None``: the system's folder for temporary files."""
    queues: bool = True
    """Whether records that are missing from their queues are reported."""


@contextmanager
def checked(
    one: MasterAddress,
    other: MasterAddress,
    config: SideConfigs | None = None,
    how_much: CheckScope | None = None,
    progress: Progress = noop,
) -> Iterator[Checked]:
    """Compare two sides; yields the result, which is valid inside the block.

    Neither side is changed. If both are masters, the log file size of the first settings is used.
    ``progress`` is called with phy offsets.

    Raises:
        RefusedStoreError: there is no store, both sides are the same store or have the same log,
            or a master's log cannot be compared with the other one.
        CorruptionError: a store cannot be read, or the bytes from a master are not a log.
        StoreIOError: a master does not respond, or a file cannot be read or written.
    """
    how_much = how_much or CheckScope()
    with ExitStack() as stack:
        first, second = _open(stack, (one, other), each_config(config), how_much, progress)
        yield _compare(first, second, how_much, progress)


def each_config(config: SideConfigs | None) -> tuple[StoreConfig, StoreConfig]:
    """Return the settings of each side, adapted for reading."""
    one, other = config if isinstance(config, tuple) else (config, config)
    return readable(one or StoreConfig()), readable(other or StoreConfig())


def _open(
    stack: ExitStack,
    places: tuple[MasterAddress, MasterAddress],
    configs: tuple[StoreConfig, StoreConfig],
    how_much: CheckScope,
    progress: Progress,
) -> list[LogSide]:
    """Open both sides; for a running master, a range of its log is fetched into a spool folder.

    Raises:
        RefusedStoreError: both are one store or have one log, or a master lacks the range.
    """
    one, other = places
    if isinstance(one, Path) and isinstance(other, Path) and is_same_folder(one, other):
        raise RefusedStoreError("both sides are the same store", path=one)
    stores = [
        stack.enter_context(open_side(place, config)) if isinstance(place, Path) else None
        for place, config in zip(places, configs, strict=True)
    ]
    refuse_same_log([store for store in stores if store is not None])
    masters = [place for place in places if isinstance(place, Master)]
    if not masters:
        return [store for store in stores if store is not None]
    begins = {master: asyncio.run(last_file_begin(master)) for master in masters}
    beside = next((store for store in stores if store is not None), None)
    file_size = (
        configs[0].mapped_file_size_commit_log if beside is None else beside.log.files.file_size
    )
    for master, begin in begins.items():
        refuse_other_files(master, begin, file_size)
    wanted = _bytes_to_compare(beside, min(begins.values()), file_size, how_much.last_bytes)
    sides: list[LogSide] = []
    for place, store in zip(places, stores, strict=True):
        if isinstance(place, Master):
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="cqstore-ha-", dir=how_much.folder)
            )
            sides.append(_fetched(place, wanted, Path(folder), file_size, begins[place], progress))
        elif store is not None:
            sides.append(store)
    return sides


def _bytes_to_compare(
    beside: StoreSide | None, last_file: int, file_size: int, last_bytes: int | None
) -> ByteRange:
    """Return the range of a master's log to compare with a store's, or with another master's.

    It starts at the start of a file, and never after the start of the master's last file, which
    the master is known to have.
    """
    last = file_size if last_bytes is None else last_bytes
    if beside is None:
        begin = max(last_file - (last - file_size), 0)
        return ByteRange(begin - begin % file_size, last_file, last_file + 2 * file_size)
    low, end = beside.log.min_phy_offset(), beside.log.max_phy_offset()
    if low < 0:
        return ByteRange(last_file, last_file, last_file + last)
    begin = max(end - (1 if last_bytes is None else last), low)
    return ByteRange(min(begin - begin % file_size, last_file), end, end + max(last, file_size))


def _fetched(
    master: Master,
    wanted: ByteRange,
    folder: Path,
    file_size: int,
    last_file: int,
    progress: Progress,
) -> FetchedSide:
    """Fetch a range of a master's log; return it as a side.

    Raises:
        RefusedStoreError: the master no longer has the range.
    """
    end, whole = asyncio.run(fetch(master, wanted, folder, file_size, progress))
    if end == wanted.begin < last_file:
        raise RefusedStoreError(
            f"{master} no longer has offset {wanted.begin}: its last file begins at {last_file}."
            " Use --last BYTES to compare fewer bytes"
        )
    return FetchedSide.of(master, folder, file_size, end, whole=whole)


def _compare(one: LogSide, other: LogSide, how_much: CheckScope, progress: Progress) -> Checked:
    """Compare the logs, find records missing from queues, and compare the brokers' tables."""
    common = compare_logs(one.log, other.log, progress)
    tails = tuple(
        tail_of(side.log, common.end if common.compared else span(side.log).start, progress)
        for side in (one, other)
    )
    unread: list[str] = []
    mine, others = _tables(one, unread), _tables(other, unread)
    unlike = [] if mine is None or others is None else compare_tables(mine, others)
    stuck = (one.undispatched(), other.undispatched()) if how_much.queues else (None, None)
    return Checked(one, other, common, (tails[0], tails[1]), stuck, (mine, others), unread, unlike)


def _tables(side: LogSide, unread: list[str]) -> BrokerTables | None:
    """Return the tables of a side; ``None``: there are none, or they cannot be read."""
    if side.config is None:
        return None
    try:
        return read_tables(side.config)
    except StoreIOError as exc:
        unread.append(str(exc))
        return None
