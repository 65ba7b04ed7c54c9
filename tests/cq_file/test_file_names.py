"""What lies in the folders of queues: names, sizes, bare files, and what is made of odd ones."""

from functools import partial
from pathlib import Path
from struct import Struct

import pytest

from cqstore.cq_file.descriptor_cache import DescriptorCache
from cqstore.cq_file.dump import rows_of_file
from cqstore.cq_file.file_sync import UnsyncedFiles
from cqstore.cq_file.layout import parse_file_name, parse_queue_id
from cqstore.cq_file.listing import (
    Listing,
    SizeCount,
    allocated_bytes,
    check_folder_name,
    fit_files,
    list_queues,
)
from cqstore.cq_file.queue_files import FileAccess, QueueFiles
from cqstore.store.errors import (
    CorruptionError,
    IllegalMessageError,
    StoreConfigError,
    StoreIOError,
    TruncatedRecordError,
)
from tests.kit.faults import EACCES, Faults
from tests.kit.file_queues import BATCH, EXT_UNIT, PRE_BLANK, UNIT, Disk, Row, rows


@pytest.mark.parametrize(
    ("name", "queue_id"),
    [
        ("0", 0), ("7", 7), ("-1", -1), ("-10", -10), ("2147483647", (1 << 31) - 1),
        ("-2147483648", -(1 << 31)), ("2147483648", None), ("-2147483649", None), ("-0", None),
        ("00", None), ("07", None), ("+7", None), ("", None), ("7 ", None), ("12345678901", None),
        ("٣", None), ("7\n", None),
    ],
)  # fmt: skip
def test_folders_of_queues_are_named_like_java_ints(name: str, queue_id: int | None) -> None:
    assert parse_queue_id(name) == queue_id


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("0" * 20, 0), (f"{200:020d}", 200), (f"{(1 << 63) - 1:020d}", (1 << 63) - 1),
        (f"{1 << 63:020d}", None), ("0" * 19, None), ("0" * 21, None), ("-" + "0" * 19, None),
        ("٣" * 20, None), ("0" * 20 + "\n", None),
    ],
)  # fmt: skip
def test_files_are_named_by_the_twenty_digits_of_a_java_long(name: str, start: int | None) -> None:
    assert parse_file_name(name) == start


@pytest.mark.parametrize(
    ("topic", "length"), [("x" * 255, 0), ("x" * 256, 256), ("主" * 85, 0), ("主" * 86, 258)]
)
def test_a_topics_folder_may_have_a_name_of_255_bytes(topic: str, length: int) -> None:
    if not length:
        check_folder_name(topic)
        return
    with pytest.raises(
        IllegalMessageError, match=f"too long: {length} bytes, a folder name has at most 255"
    ):
        check_folder_name(topic)


# ---- sizes


def list_in(root: Path, topics: set[str] | None = None) -> Listing[QueueFiles]:
    """List the simple queues of a store."""
    folder = root / "consumequeue"
    access = FileAccess(str(folder), 0, DescriptorCache(1, read_only=True), UnsyncedFiles())
    return list_queues(folder, partial(QueueFiles, access), topics)


def folder_of(root: Path, sizes: dict[int, int]) -> Listing[QueueFiles]:
    """Return the list of a queue 0 with files of these sizes, by start."""
    for start, size in sizes.items():
        path = Disk(root).file(start)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return list_in(root)


@pytest.mark.parametrize(
    ("sizes", "explicit", "left_out"),
    [
        ({0: 40, 40: 40}, True, []), ({0: 40, 40: 40, 80: 60}, True, [80]),
        ({0: 40, 40: 40, 90: 40}, False, [90]), ({0: 40, 50: 60, 80: 40, 120: 40}, False, [50]),
        ({0: 40, 80: 40, 60: 40, 100: 40}, False, [60, 100]),
    ],
)  # fmt: skip
def test_few_files_that_do_not_fit_are_left_out_and_the_first_of_them_is_named(
    tmp_path: Path, sizes: dict[int, int], left_out: list[int], *, explicit: bool
) -> None:
    listing = folder_of(tmp_path, sizes)
    assert fit_files(listing, 40 if explicit else 9000, 20, explicit=explicit) == 40
    (queue,) = listing.each()
    assert (queue.key, queue.folder) == (("T", 0), str(Disk(tmp_path).folder()))
    assert queue.starts == sorted(sizes.keys() - {*left_out})
    first = {queue.key: str(Disk(tmp_path).file(min(left_out)))} if left_out else {}
    assert listing.misfits == first


@pytest.mark.parametrize(
    ("sizes", "explicit", "path", "expected", "got"),
    [
        ({0: 40, 40: 60}, True, 40, 40, 60), ({0: 60, 60: 60, 120: 40}, True, 0, 40, 60),
        ({0: 40, 40: 40, 80: 60, 120: 60}, False, 80, 40, 60),
        ({0: 40, 40: 60, 100: 80}, False, 40, 40, 60), ({0: 30, 30: 30}, False, 0, None, 30),
        ({10: 40, 50: 40, 80: 40}, False, 10, None, None),
        ({0: 30}, True, 0, 40, 30), ({0: 20, 40: 40}, True, 0, 40, 20),
        ({0: 33, 40: 33, 80: 40}, False, 0, 40, 33),
    ],
)  # fmt: skip
def test_many_files_that_do_not_fit_are_refused_with_what_was_expected(
    tmp_path: Path,
    sizes: dict[int, int],
    path: int,
    expected: int | None,
    got: int | None,
    *,
    explicit: bool,
) -> None:
    listing = folder_of(tmp_path, sizes)
    with pytest.raises(CorruptionError) as caught:
        fit_files(listing, 40 if explicit else 9000, 20, explicit=explicit)
    assert caught.value.path == Disk(tmp_path).file(path)
    words = "multiples of 40" if got is None else "a multiple of 20 bytes"
    assert caught.value.expected == (words if expected is None else expected)
    assert caught.value.got == got
    is_cut = got in {20, 30, 33}  # no whole units, or beside one of the size that is expected
    assert isinstance(caught.value, TruncatedRecordError) == is_cut
    assert caught.value.position == (got if is_cut else None)


@pytest.mark.parametrize("sizes", [{0: 60, 60: 60}, {0: 60}, {0: 20, 20: 20, 40: 20, 60: 33}])
def test_a_size_that_most_files_contradict_is_a_wrong_setting(
    tmp_path: Path, sizes: dict[int, int]
) -> None:
    listing, setting = folder_of(tmp_path, sizes), "mapped_file_size_consume_queue"
    with pytest.raises(StoreConfigError) as caught:
        fit_files(listing, 40, 20, explicit=True, setting=setting)
    assert caught.value.path == Disk(tmp_path).file(0)
    assert "mappedFileSizeConsumeQueue=40 is a wrong setting" in str(caught.value)
    assert f"queue files here have {sizes[0]} bytes" in str(caught.value)


def test_a_list_counts_sizes_and_names_files_that_were_never_sized(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    for queue_id in (0, 1):
        disk.write(0, rows(1, 1), queue_id=queue_id)
        disk.write(200, rows(1, 1), queue_id=queue_id)
    disk.file(400).touch()
    disk.file(400, queue_id=1).touch()
    disk.write(600, rows(1, 1), queue_id=1)
    disk.folder("U").parent.mkdir()
    listing = list_in(tmp_path)
    assert ([*listing.queues], listing.empty_topics) == (["T"], ["U"])
    assert listing.sizes == {200: SizeCount(5, str(disk.file(0)))}
    assert listing.empty_last == [str(disk.file(400)), str(disk.file(400, queue_id=1))]
    assert {queue.queue_id: queue.starts for queue in listing.each()} == {
        0: [0, 200], 1: [0, 200, 600],
    }  # fmt: skip
    assert {queue.queue_id: path for queue, path in listing.misfits.items()} == {
        1: str(disk.file(400, queue_id=1))
    }
    assert fit_files(Listing[QueueFiles](), 9000, 20, explicit=False) == 9000
    assert list_in(tmp_path, {"U"}).queues == {}
    assert list_in(tmp_path / "nothing") == Listing()


def test_a_folder_that_cannot_be_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 1))
    Faults(monkeypatch).fail("list", EACCES, "/T/0")
    # The compiled listing, whose calls cannot be refused here, leaves such a folder to Python.
    monkeypatch.setattr("cqstore.cq_file.listing.regular_files", lambda _: None)
    for look in (list_in, lambda root: allocated_bytes(root / "consumequeue")):
        with pytest.raises(StoreIOError, match="cannot list a queue folder: ") as caught:
            look(tmp_path)
        assert caught.value.path == disk.folder()


def test_a_folder_named_like_a_file_is_no_queue_file(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 1))
    disk.file(200).mkdir()
    with pytest.raises(CorruptionError) as caught:
        list_in(tmp_path)
    assert caught.value.path == disk.file(200)


# ---- bare files


def dumped(path: Path, data: bytes) -> list[dict[str, object]] | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    found = rows_of_file(path)
    return None if found is None else list(found)


def packed(*units: Row) -> bytes:
    return b"".join(UNIT.pack(*unit) for unit in units)


def test_a_dump_tells_each_unit_of_a_queue_file_with_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "consumequeue" / "T" / "0" / f"{200:020d}"
    data = packed(PRE_BLANK, (5, 50, -7), (0, 0, 0), (0, 0, 9)) + b"x" * 19
    assert dumped(path, data) == [
        {"queueOffset": 10, "preBlank": True},
        {"queueOffset": 11, "phy_offset": 5, "size": 50, "tags_code": -7},
        {"queueOffset": 13, "phy_offset": 0, "size": 0, "tags_code": 9},
    ]
    assert dumped(path, b"") == []
    assert dumped(path.with_name("200"), data) is None


def test_a_dump_tells_each_unit_of_a_batch_queue_file_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "batchconsumequeue" / "T" / "0" / f"{138:020d}"
    data = BATCH.pack(5, 50, 9, 100, 3, 2, -1, 0) + bytes(46) + BATCH.pack(*[0] * 7, 1) + b"x" * 45
    fields = ["phy_offset", "size", "tags_code", "store_timestamp", "msg_base_offset",
              "batch_size", "compacted_offset", "reserved"]  # fmt: skip
    assert dumped(path, data) == [
        {"logicOffset": 138, **dict(zip(fields, (5, 50, 9, 100, 3, 2, -1, 0), strict=True))},
        {"logicOffset": 230, **dict(zip(fields, (0, 0, 0, 0, 0, 0, 0, 1), strict=True))},
    ]


def test_a_dump_of_extension_units_ends_with_the_file_or_where_it_is_filled_up(
    tmp_path: Path,
) -> None:
    path = tmp_path / "consumequeue_ext" / "T" / "0" / f"{64:020d}"
    filled = EXT_UNIT + Struct(">hqqh").pack(-1, 0, 0, 0)
    assert [row["logicOffset"] for row in dumped(path, filled.ljust(64, b"\0")) or []] == [64]
    short = Struct(">hqqh").pack(19, 0, 0, 0)
    assert [row["logicOffset"] for row in dumped(path, EXT_UNIT + short) or []] == [64]
    assert [row["logicOffset"] for row in dumped(path, EXT_UNIT + bytes(19)) or []] == [64]


@pytest.mark.parametrize(
    ("data", "known"),
    [
        (packed((5, 50, 7)), True), (packed((0, 1, 0)), True), (packed((5, 0, 7)), False),
        (packed((-1, 50, 7)), False), (packed((5, 50, 7)) + b"x", False), (b"", False),
        (packed((5, 50, 7))[:19], False), (packed((5, 50, 7), (6, 50, 7)), True),
        (bytes.fromhex("00000050 DAA320A7") + bytes([0, 0, 0, 1] * 3), False),
        (bytes.fromhex("00000050 DAA320AB") + bytes([0, 0, 0, 1] * 3), False),
        (bytes.fromhex("00000050 CBD43194") + bytes([0, 0, 0, 1] * 3), False),
        (bytes.fromhex("00000050 DAA320A6") + bytes([0, 0, 0, 1] * 3), True),
    ],
)  # fmt: skip
def test_a_file_outside_its_folders_is_told_from_one_of_the_log_by_its_first_bytes(
    tmp_path: Path, data: bytes, *, known: bool
) -> None:
    found = dumped(tmp_path / f"{20:020d}", data)
    if not known:
        assert found is None
    else:
        assert found is not None
        assert [row["queueOffset"] for row in found] == list(range(1, 1 + len(data) // 20))


def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"{20:020d}"
    path.write_bytes(packed((5, 50, 7)))
    Faults(monkeypatch).fail("open", EACCES, path.name)
    with pytest.raises(StoreIOError, match="cannot read a queue file: ") as caught:
        rows_of_file(path)
    assert caught.value.path == path


def test_a_file_below_the_root_is_in_no_folder_of_queues() -> None:
    with pytest.raises(StoreIOError, match="No such file"):
        rows_of_file(Path("/gone", f"{20:020d}"))


# ---- extension units


@pytest.mark.parametrize(
    ("head", "found"),
    [
        ((24, 7, 11, 4), True), ((20, 7, 11, 0), True), ((40, 7, 11, 20), True),
        ((41, 7, 11, 21), False), ((25, 7, 11, 4), False), ((23, 7, 11, 4), False),
        ((19, 7, 11, -1), False), ((-1, 7, 11, -21), False), ((0, 0, 0, 0), False),
    ],
)  # fmt: skip
def test_an_address_leads_to_a_whole_unit_of_its_file_or_nowhere(
    tmp_path: Path, head: tuple[int, ...], *, found: bool
) -> None:
    disk = Disk(tmp_path)
    disk.fill("T")
    path = disk.folder("T", 0, "consumequeue_ext") / f"{0:020d}"
    path.write_bytes((bytes(24) + Struct(">hqqh").pack(*head)).ljust(64, b"x"))
    store = disk.open(read_only=True)
    code = store.queue("T", 0).resolve_tags_code(-(1 << 63) + 24)
    assert code == (7 if found else None)
    assert store.queue("T", 0).resolve_tags_code(-(1 << 63) + 45) is None
    assert store.queue("T", 0).resolve_tags_code(-(1 << 31) - 1) is None
    assert store.queue("T", 0).resolve_tags_code(-(1 << 31)) == -(1 << 31)
    store.close()
