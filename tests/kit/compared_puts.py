"""What puts leave in a store; two stores, of which the oracle puts into one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.messages import MAX_BODY
from tests.kit.oracle.puts import put_by_oracle
from tests.kit.quiet_config import quiet_config
from tests.kit.shim.clock import CLOCK

NOW = 1_700_000_000_000
CONFIG = quiet_config(
    mapped_file_size_commit_log=1 << 14, max_message_size=MAX_BODY, max_hash_slot_num=64,
    max_index_num=4096,


)  # fmt: skip


def stop_clock(patch: pytest.MonkeyPatch) -> None:
    """Let it be ``NOW``."""
    patch.setattr(CLOCK, "stopped", NOW * 1_000_000)


@contextmanager
def core_and_oracle(
    root: Path, config: StoreConfig = CONFIG
) -> Iterator[tuple[MessageStore, MessageStore]]:
    """Open two stores of the same settings; the oracle puts into the second."""
    with (
        MessageStore.open(root / "core", config, housekeeping=False) as core,
        MessageStore.open(root / "oracle", config, housekeeping=False) as oracle,
    ):
        put_by_oracle(oracle)
        yield core, oracle


def waiting(store: MessageStore) -> list[object]:
    """All that an append changes, but for the log's bytes."""
    pending, log = components_of(store).pending, components_of(store).log
    units, keys = pending.units, pending.keys
    return [
        units.queues, *map(bytes, (units.queue_index, units.queue_offset, units.units)),
        units.end_phy_offset, dict(units.index_of), list(keys.rows(0, len(keys))), pending.last,
        dict(pending.offsets.next), log.max_phy_offset(), log.appended_records, log.blank_bytes,
        [file.wrote_position for file in log.files],
    ]  # fmt: skip


def log_bytes(store: MessageStore) -> bytes:
    """Return the bytes of all files of the log."""
    files = components_of(store).log.files.files()
    return b"".join(bytes(file.map()[:]) for file in files)
