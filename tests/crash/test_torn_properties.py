"""A broker that is killed while it copies the last record: zeros where properties were to be."""

import shutil
import struct
from pathlib import Path

import pytest

from cqstore import Message, MessageStore, StoreConfig

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 16, rocksdb_memory_bytes=16 << 20)
BACKENDS = ["file", "rocksdb"]
LAST = {"KEYS": "k2", "TAGS": "B"}


def made(root: Path, backend: str, *properties: dict[str, str]) -> list[int]:
    """Put a message with each of ``properties``; return where their records are."""
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        return [
            store.put_message(Message("t", b"body %d" % at, properties=given)).phy_offset
            for at, given in enumerate(properties)
        ]


def crashed(root: Path, *, own: bool = False) -> None:
    """Leave what a broker leaves that is killed before it has written queues and index."""
    for name in ("consumequeue", "index", *(() if own else ("cqstore",))):
        shutil.rmtree(root / name, ignore_errors=True)
    if not own:
        (root / "checkpoint").unlink()
    (root / "abort").touch()


def tear(root: Path, at: int, begin: int | None = None) -> tuple[int, int]:
    """Zero the record at ``at`` from ``begin`` of its properties on; return where these are."""
    log = next((root / "commitlog").glob("0*"))
    data = bytearray(log.read_bytes())
    end = at + struct.unpack_from(">i", data, at)[0]
    first = data.index(b"KEYS", at, end)
    if begin is not None:
        data[first + begin : end] = bytes(end - first - begin)
        log.write_bytes(data)
    return first, end


def bodies(root: Path, backend: str, *, read_only: bool = False) -> list[bytes]:
    with MessageStore.open(root, CONFIG, backend=backend, read_only=read_only) as store:
        if read_only:
            return [b""] * (store.report.scanned_records)
        return [bytes(message.body) for message in store.get_message("t", 0, 0).messages()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_last_record_whose_properties_are_torn_is_cut(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "made"
    _, last = made(root, backend, {}, LAST)
    crashed(root)
    first, end = tear(root, last)
    assert end - first == len("KEYS.k2.TAGS.B.")
    for begin in range(end - first):
        again = tmp_path / f"torn {begin}"
        shutil.copytree(root, again)
        tear(again, last, begin)
        assert bodies(again, backend, read_only=True) == [b""]
        with MessageStore.open(again, CONFIG, backend=backend) as store:
            assert store.max_phy_offset() == last
            assert store.report.dropped_bytes > 0
            (saved,) = store.report.saved
            assert saved.phy_offset == last
        assert bodies(again, backend) == [b"body 0"]
    assert bodies(root, backend) == [b"body 0", b"body 1"], "which was not torn"


@pytest.mark.parametrize("backend", BACKENDS)
def test_zeros_before_a_valid_record_came_from_a_client(tmp_path: Path, backend: str) -> None:
    _, second, _ = made(tmp_path, backend, {}, LAST, {})
    crashed(tmp_path)
    tear(tmp_path, second, 5)
    assert bodies(tmp_path, backend) == [b"body 0", b"body 1", b"body 2"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_record_that_was_surely_on_disk_is_kept(tmp_path: Path, backend: str) -> None:
    _, last = made(tmp_path, backend, {}, LAST)
    crashed(tmp_path, own=True)
    tear(tmp_path, last, 5)
    assert bodies(tmp_path, backend) == [b"body 0", b"body 1"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("value", ["a\0", "\0\0", "a\0b"])
def test_what_a_put_has_acknowledged_is_kept_whatever_it_holds(
    tmp_path: Path, backend: str, value: str
) -> None:
    """Properties are stored with a separator at their end."""
    made(tmp_path, backend, {}, {"name": value})
    crashed(tmp_path)
    assert bodies(tmp_path, backend) == [b"body 0", b"body 1"]


def test_a_topic_that_is_torn_is_no_topic(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        assert store.put_message(Message("t", b"body 0")).ok
        last = store.put_message(Message("topic", b"body 1")).phy_offset
    crashed(tmp_path)
    log = next((tmp_path / "commitlog").glob("0*"))
    data = bytearray(log.read_bytes())
    at = data.index(b"topic", last)
    data[at + 2 : at + 5] = bytes(3)
    log.write_bytes(data)
    with MessageStore.open(tmp_path, CONFIG) as store:
        assert store.max_phy_offset() == last
        assert [key.topic for key in store.queue_keys()] == ["t"]
