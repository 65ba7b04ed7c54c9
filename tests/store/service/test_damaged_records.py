"""Damaged records: an opening notices those at the end of the log, a pull passes over any."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqstore.cli.app import app
from cqstore.store.errors import ChecksumError, RefusedStoreError
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.record.record_layout import HEAD, body_position
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.recovering import find_log_end as log_end
from cqstore.store.service.recovering.replacement import Rebuild
from cqstore.store.service.results import GetMessageStatus
from cqstore.store.settings.config import StoreConfig
from tests.kit.crash_images import crash_image
from tests.kit.tree import unchanged

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536,
    max_hash_slot_num=100, max_index_num=1000,
)  # fmt: skip
COUNT = 20
BODY = body_position(0)


@pytest.fixture(params=backend_names())
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A cleanly closed store of messages with the tag x in one queue."""
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, backend=request.param) as store:
        for number in range(COUNT):
            message = Message("t", b"%02d" % number * 100, 0, {"TAGS": "x", "KEYS": f"k{number}"})
            assert store.put_message(message).ok
    return root


def places(root: Path) -> list[int]:
    with MessageStore.open(root, read_only=True) as store:
        return [record.phy_offset for record in components_of(store).log.scan(0)]


def flip(root: Path, phy_offset: int) -> None:
    """Flip one bit of the log."""
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(phy_offset)
        byte = file.read(1)[0]
        file.seek(phy_offset)
        file.write(bytes([byte ^ 0x10]))


def in_head(field: str) -> int:
    return HEAD.offset(field) + (7 if field == "phy_offset" else 3)


HEADS = [in_head("total_size"), in_head("magic_code"), in_head("phy_offset")]
LENGTHS = [BODY - 2, BODY + 200]
"""Of the body, and of the topic behind it."""


# ---- at opening


@pytest.mark.parametrize("at", [*HEADS, *LENGTHS, BODY + 5])
def test_a_damaged_last_record_is_noticed_after_a_clean_stop(root: Path, at: int) -> None:
    last = places(root)[-1]
    flip(root, last + at)
    with unchanged(root), MessageStore.open(root, read_only=True) as store:
        assert store.report.damage is not None
        assert store.report.damage.phy_offset == last
        assert store.report.needed
        found = [finding.phy_offset for finding in store.check() if finding.damage]
        assert last in found
    with unchanged(root / "commitlog"), pytest.raises(RefusedStoreError, match=f"--cut-at {last}"):
        MessageStore.open(root)
    with MessageStore.open(root, recovery=RecoveryOptions(cut_at=last)) as store:
        assert store.max_offset("t", 0) == COUNT - 1
    with MessageStore.open(root) as store:
        assert not store.report.needed


def test_what_is_put_after_a_cut_survives_a_kill_before_any_flush(root: Path) -> None:
    cut, last = places(root)[10], places(root)[-1]
    flip(root, cut + BODY)
    with MessageStore.open(root, recovery=RecoveryOptions(cut_at=cut), housekeeping=False) as store:
        acknowledged = [store.put_message(Message("t", b"new" * 9, 0)) for _ in range(3)]
        assert all(put.phy_offset < last for put in acknowledged)  # where the old ones were
        killed = crash_image(root, root.with_name("killed"))
    with MessageStore.open(killed, housekeeping=False) as store:
        assert not store.report.last_exit_ok
        ends = (store.max_offset("t", 0), components_of(store).queues.queue("t", 0).max_offset())
        assert ends == (13, 13)
        block = components_of(store).queues.queue("t", 0).read_units(10, 9)
        assert [at for at, *_ in block.rows()] == [put.phy_offset for put in acknowledged]


def test_an_index_is_not_built_anew_past_a_damaged_record(tmp_path: Path) -> None:
    """It points behind the cut, so it goes; what is read again for it was not read at opening."""
    root, config = tmp_path / "store", StoreConfig(mapped_file_size_commit_log=4096)
    with MessageStore.open(root, config, backend="file") as store:
        for number in range(20):
            assert store.put_message(Message("t", b"x" * 600, 0, {"KEYS": f"k{number}"})).ok
    at = places(root)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(at[2] + BODY + 5)
        file.write(b"?")
    *_, last = sorted((root / "commitlog").iterdir())
    with last.open("r+b") as file:
        file.seek(at[-1] % 4096)
        file.write(b"\xff" * 4)
    with pytest.raises(ChecksumError) as caught:
        MessageStore.open(root, config, recovery=RecoveryOptions(cut_at=at[-1]))
    assert caught.value.phy_offset == at[2]


def test_a_damaged_record_among_the_last_ones_is_noticed(root: Path) -> None:
    bad = places(root)[7]
    flip(root, bad + BODY)
    with MessageStore.open(root, read_only=True) as store:
        assert store.report.damage is not None
        assert store.report.damage.phy_offset == bad
        assert store.max_phy_offset() == components_of(
            store
        ).checkpoint.fields.confirm_phy_offset + (
            store.message_by_offset(components_of(store).checkpoint.fields.confirm_phy_offset).size
        )
    with pytest.raises(RefusedStoreError, match="a valid record follows at "):
        MessageStore.open(root)


def test_a_crash_hides_no_damage_that_the_checkpoint_vouches_for(root: Path) -> None:
    last = places(root)[-1]
    flip(root, last + BODY)
    (root / "abort").touch()
    with pytest.raises(RefusedStoreError, match="this record was on disk"):
        MessageStore.open(root)


def test_the_last_records_of_a_full_file_are_proven_too(tmp_path: Path) -> None:
    config = StoreConfig(mapped_file_size_commit_log=4096)
    with MessageStore.open(tmp_path, config, backend="file") as store:
        for _ in range(5):
            store.put_message(Message("t", b"x" * 1000))
        log = components_of(store).log
        *_, last = (record for record in log.scan(0, 4096))
        for end in (last.phy_offset, last.phy_offset + last.size, 4096, log.max_phy_offset()):
            assert log_end.scan_start(log, end, 0, ScanRules(), trust_wanted=True) == end
        flip(tmp_path, last.phy_offset + BODY)
        assert log_end.scan_start(log, 4096, 0, ScanRules(), trust_wanted=True) == 0


def test_nothing_is_built_anew_from_a_log_that_lost_its_last_record(root: Path) -> None:
    last = places(root)[-1]
    flip(root, last + BODY)
    with unchanged(root), pytest.raises(RefusedStoreError, match="this record was on disk"):
        MessageStore.open(root, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES))
    MessageStore.open(root, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES, cut_at=last)).close()


def test_a_lost_log_file_is_noticed_after_a_clean_stop(tmp_path: Path) -> None:
    config = StoreConfig(mapped_file_size_commit_log=4096)
    with MessageStore.open(tmp_path, config, backend="file") as store:
        for _ in range(8):
            store.put_message(Message("t", b"x" * 1000))
    *_, last = sorted((tmp_path / "commitlog").iterdir())
    last.unlink()
    end = int(last.name)
    with MessageStore.open(tmp_path, config, read_only=True) as store:
        assert store.report.damage is not None
        assert store.report.damage.phy_offset == end
    with pytest.raises(RefusedStoreError, match=f"this record was on disk.*--cut-at {end}"):
        MessageStore.open(tmp_path, config)
    with pytest.raises(RefusedStoreError):
        MessageStore.open(tmp_path, config, recovery=RecoveryOptions(pass_over=[end]))
    with MessageStore.open(tmp_path, config, recovery=RecoveryOptions(cut_at=end)) as store:
        assert store.max_offset("t", 0) == 6
        assert store.put_message(Message("t", b"x")).phy_offset == end


def test_what_is_checked_at_every_opening_is_bounded(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, *_, last = places(root)
    monkeypatch.setattr(log_end, "PROVEN_BYTES", 1000)
    flip(root, start + BODY)
    MessageStore.open(root).close()
    flip(root, last + BODY)
    with MessageStore.open(root, read_only=True) as store:
        assert store.report.damage is not None
        assert store.report.damage.phy_offset == start  # then the whole file is


def test_a_message_that_looks_like_a_record_is_taken_for_none(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, backend="file") as store:
        first = store.put_message(Message("t", b"x" * 100))
        assert first.appended is not None
        size = first.appended.size
        record = bytearray(bytes(store.message_by_offset(0).record))
        at = HEAD.offset("phy_offset")
        record[at : at + 8] = (size + BODY).to_bytes(8, "big")
        record[:4] = (size + 1000).to_bytes(4, "big")
        store.put_message(Message("t", bytes(record)))
    for proven in (2 * size - 1, 2 * size + 50, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log_end, "PROVEN_BYTES", proven)
            MessageStore.open(root).close()


# ---- at pulling


@pytest.mark.parametrize("tags", [None, TagFilter("x")])
@pytest.mark.parametrize("at", [*HEADS, *LENGTHS])
def test_a_pull_passes_over_a_damaged_record(root: Path, at: int, tags: TagFilter | None) -> None:
    offsets = places(root)
    with MessageStore.open(root) as store:
        flip(root, offsets[7] + at)
        result = store.get_message("t", 0, 0, tags=tags)
        messages = result.messages()
        assert result.status is GetMessageStatus.FOUND
        rest = [number for number in range(COUNT) if number != 7]
        assert result.queue_offsets == rest
        assert [message.queue_offset for message in messages] == rest
        assert result.next_begin_offset == COUNT
        (damaged,) = result.damaged
        assert (damaged.queue_offset, damaged.phy_offset) == (7, offsets[7])
        assert damaged.reason
        following: list[int] = []
        offset = 7
        while not following:
            one = store.get_message("t", 0, offset, 1, tags=tags)
            following = [message.queue_offset for message in one.messages()]
            assert one.next_begin_offset > offset
            offset = one.next_begin_offset
        assert following == [8]


@pytest.mark.parametrize("tags", [None, TagFilter("x")])
@pytest.mark.parametrize("at", [*HEADS, *LENGTHS])
def test_a_pull_that_meets_nothing_else_says_what_comes_next(
    root: Path, at: int, tags: TagFilter | None
) -> None:
    last = places(root)[-1]
    with MessageStore.open(root) as store:
        flip(root, last + at)
        result = store.get_message("t", 0, COUNT - 1, tags=tags)
        assert result.messages() == []
        assert result.queue_offsets == []
        assert result.status is GetMessageStatus.MESSAGE_WAS_REMOVING
        assert result.next_begin_offset == COUNT
        assert [damaged.phy_offset for damaged in result.damaged] == [last]


def test_a_pull_checks_bodies_if_it_is_told_to(root: Path) -> None:
    offsets = places(root)
    with MessageStore.open(root) as store:
        flip(root, offsets[3] + BODY)
        assert len(store.get_message("t", 0, 0).records) == COUNT
    config = StoreConfig(check_crc_on_pull=True)
    with MessageStore.open(root, config, read_only=True) as store:
        result = store.get_message("t", 0, 0)
        assert len(result.messages()) == COUNT - 1
        assert [damaged.queue_offset for damaged in result.damaged] == [3]


def test_the_command_names_what_it_passes_over(root: Path) -> None:
    offsets = places(root)
    flip(root, offsets[3] + BODY)
    done = CliRunner().invoke(app, ["get", str(root), "--topic", "t"])
    assert done.exit_code == 1
    assert len(done.stdout.splitlines()) == COUNT - 1
    assert "unit 3 is skipped: the body's CRC does not match" in done.stderr
