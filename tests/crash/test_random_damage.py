"""Golden stores with random damage: only our own errors, nothing lost before it, nothing hangs.

Each seed damages one place of one file. What can be said of the outcome: opening either raises an
error of the tree or gives a store; its log holds every record before the damage, byte for byte; and
if a queue answers otherwise than before, ``check`` says so.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.cli.message_files.dump_rows import digest, queue_row
from cqstore.store.errors import StoreError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.golden import NAMES, load_dump
from tests.kit.long_too import long_too

Golden = Callable[[str], Path]
DAMAGED = ("commitlog", "consumequeue", "index", "checkpoint", "batchconsumequeue")
QUICK = range(24)
LONG = [*range(24, 40), *range(1000, 1400)]
EVERYTHING = 1 << 62


def damage(root: Path, draw: random.Random) -> tuple[Path, int]:
    """Damage a place that holds data; return file and position."""
    kinds = {kind: files_with_data(root / kind) for kind in DAMAGED}
    path = draw.choice(kinds[draw.choice([kind for kind, files in kinds.items() if files])])
    data = bytearray(path.read_bytes())
    at = draw.randrange(len(data.rstrip(b"\0")))
    how = draw.randrange(3)
    if how == 0:
        data[at] ^= 1 << draw.randrange(8)
    elif how == 1:
        data[at : at + 4096] = bytes(len(data[at : at + 4096]))
    else:
        length = min(draw.randrange(1, 64), len(data) - at)
        data[at : at + length] = draw.randbytes(length)
    path.write_bytes(data)
    return path, at


def files_with_data(top: Path) -> list[Path]:
    files = [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file()]
    return sorted(path for path in files if any(path.read_bytes()))


def check_one(golden: Golden, seed: int) -> None:
    draw = random.Random(seed)
    name = draw.choice(NAMES)
    dump, root = load_dump(name), golden(name)
    path, at = damage(root, draw)
    in_log = path.parent.name == "commitlog"
    sound_until = int(path.name) + at if in_log else EVERYTHING
    for read_only in (True, False):
        try:
            store = MessageStore.open(root, read_only=read_only)
        except StoreError:
            continue
        try:
            look(store, dump, sound_until)
        finally:
            try:
                store.close()
            except StoreError:
                assert not read_only


def look(store: MessageStore, dump: dict[str, object], sound_until: int) -> None:
    """Compare the present units with what RocketMQ had read before the damage."""
    messages = dump["messages"]
    assert isinstance(messages, list)
    log = components_of(store).log
    for message in messages:
        end = message["phy"] + message["storeSize"]
        if end <= sound_until and end <= log.max_phy_offset():
            view = log.view(message["phy"], message["storeSize"])
            assert digest(bytes(view)) == message["record"]
    if not store.read_only:
        lost = [m["phy"] for m in messages if m["phy"] + m["storeSize"] <= sound_until]
        assert log.max_phy_offset() >= max(lost, default=0)
    try:
        findings = list(store.check())
    except StoreError:
        return
    if any(finding.damage for finding in findings) or not store.last_exit_ok:
        return
    queues = dump["queues"]
    assert isinstance(queues, list)
    for queue in queues:
        if None in queue["units"]:
            continue  # RocketMQ lost these itself
        key = next(store.queue_keys(queue["topic"]), None)
        assert key is not None
        row = queue_row(components_of(store).queues, key._replace(queue_id=queue["queueId"]))
        units = row["units"]
        assert isinstance(units, list)
        if sound_until == EVERYTHING:
            assert units == queue["units"]
        else:  # no checksum covers a record's head, so its store timestamp may lie
            assert [unit[:4] for unit in units] == [unit[:4] for unit in queue["units"]]


@pytest.mark.parametrize("seed", [*QUICK, *long_too(LONG)])
def test_damage_is_survived_or_named(golden: Golden, seed: int) -> None:
    check_one(golden, seed)
