"""Passing over a damaged record: one message is given up, and nothing behind it."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqstore.cli.app import app
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreConfigError
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.filler import UNKNOWN_TOPIC
from cqstore.store.record.message import Message, SysFlag
from cqstore.store.record.record_layout import HEAD, body_position
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.recovering.replacement import Rebuild
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.settings.config import StoreConfig
from tests.kit.plain_record import PlainRecord
from tests.kit.tree import tree_digest, unchanged

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536,
    max_hash_slot_num=100, max_index_num=1000,
)  # fmt: skip
COUNT, BAD = 30, 12
BODY = body_position(0)
LOG = Path("commitlog", "0" * 20)
DAMAGES = {
    "body": (BODY + 5, 1),
    "magic": (4, 4),
    "size": (0, 4),
    "place": (HEAD.offset("phy_offset"), 8),
    "queue": (HEAD.offset("queue_id"), 16),
    "queue offset": (HEAD.offset("queue_offset"), 8),
    "head": (0, 88),
    "all": (0, 160),
    "topic": (BODY + 40, 10),
}


@pytest.fixture(params=backend_names())
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A cleanly closed store of messages in three queues, one of them of another topic."""
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, backend=request.param) as store:
        for number in range(COUNT):
            assert store.put_message(message(number)).ok
    return root


def message(number: int) -> Message:
    topic, queue_id = (("t", 0), ("t", 1), ("other", 0))[number % 3]
    properties = {"TAGS": f"tag{number}", "KEYS": f"k{number}", "UNIQ_KEY": f"u{number}"}
    return Message(topic, f"{number:04d}".encode() * 10, queue_id, properties)


def places(root: Path) -> list[tuple[int, int]]:
    with MessageStore.open(root, read_only=True) as store:
        return [(record.phy_offset, record.size) for record in components_of(store).log.scan(0)]


def damage(root: Path, phy_offset: int, first: int, count: int) -> bytes:
    """Spoil ``count`` bytes; return what the whole log file is then."""
    path = root / LOG
    data = bytearray(path.read_bytes())
    at = phy_offset + first
    data[at : at + count] = bytes(byte ^ 0x5A for byte in data[at : at + count])
    path.write_bytes(data)
    return bytes(data)


def seen(root: Path, backend: str | None = None) -> dict[tuple[str, int], list[str]]:
    """Return what each queue answers, offset by offset."""
    found: dict[tuple[str, int], list[str]] = {}
    with MessageStore.open(root, CONFIG, read_only=True, backend=backend) as store:
        for key in (("t", 0), ("t", 1), ("other", 0)):
            for tags in (
                None,
                TagFilter(" || ".join(f"tag{number}" for number in range(COUNT + 5))),
            ):
                texts: dict[int, str] = {}
                offset = store.min_offset(*key)
                while offset < store.max_offset(*key):
                    result = store.get_message(*key, offset, 3, tags=tags)
                    bodies = [one.body.decode() for one in result.messages()]
                    texts |= zip(result.queue_offsets, bodies, strict=True)
                    assert result.next_begin_offset > offset
                    offset = result.next_begin_offset
                ends = range(store.max_offset(*key))
                answer = [texts.get(offset, "gone") for offset in ends]
                assert found.setdefault(key, answer) == answer
    return found


@pytest.mark.parametrize("kind", DAMAGES)
def test_one_message_is_given_up_and_nothing_else(root: Path, kind: str) -> None:
    before = seen(root)
    bad, size = places(root)[BAD]
    spoilt = damage(root, bad, *DAMAGES[kind])
    with pytest.raises(RefusedStoreError, match=f"--pass-over {bad}"):
        MessageStore.open(root, CONFIG)
    with MessageStore.open(root, CONFIG, recovery=RecoveryOptions(pass_over=[bad])) as store:
        (passed,) = store.report.passed_over
        assert (passed.phy_offset, passed.size, passed.place) == (bad, size, ("t", 0, BAD // 3))
        assert passed.saved.read_bytes() == spoilt[bad : bad + size]
        put = store.put_message(message(COUNT))
        assert put.queue_offset == COUNT // 3
        assert [finding for finding in store.check() if finding.damage] == []
        assert any(finding.phy_offset == bad for finding in store.check())
        (gone,) = store.get_message("t", 0, 0).damaged
        assert (gone.queue_offset, gone.phy_offset) == (BAD // 3, bad)
        with pytest.raises(CorruptionError, match="has been skipped"):
            store.message_by_offset(bad)
        for number in range(COUNT):
            hits = [hit.queue_offset for hit in store.query_message(*key_of(number))]
            assert hits == ([] if number == BAD else [number // 3])
    data = (root / LOG).read_bytes()
    assert data[:bad] == spoilt[:bad]
    end = put.phy_offset
    assert data[bad + size : end] == spoilt[bad + size : end]
    before["t", 0][BAD // 3] = "gone"
    before["t", 0].append(f"{COUNT:04d}" * 10)
    assert seen(root) == before
    assert not (root / "cqstore" / "passing-over").exists()
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        assert not store.report.needed


def key_of(number: int) -> tuple[str, str]:
    return message(number).topic, f"k{number}"


@pytest.mark.parametrize("kind", ["body", "head", "all"])
def test_queues_that_are_built_anew_are_the_same(root: Path, kind: str) -> None:
    bad, _ = places(root)[BAD]
    damage(root, bad, *DAMAGES[kind])
    MessageStore.open(root, CONFIG, recovery=RecoveryOptions(pass_over=[bad])).close()
    before = seen(root)
    for backend in backend_names():
        copy = root.with_name(f"rebuilt-{backend}")
        shutil.copytree(root, copy)
        MessageStore.open(
            copy, CONFIG, backend=backend, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES)
        ).close()
        assert seen(copy) == before


@pytest.mark.parametrize("kind", ["body", "all"])
def test_light_queues_keep_their_places(tmp_path: Path, kind: str) -> None:
    config = CONFIG.model_copy(update={"enable_lmq": True, "enable_multi_dispatch": True})
    for backend in backend_names():
        root = tmp_path / backend
        with MessageStore.open(root, config, backend=backend) as store:
            for number in range(9):
                light = {"INNER_MULTI_DISPATCH": f"%LMQ%a,%LMQ%{number % 3}"}
                assert store.put_message(Message("t", b"x" * 100, 0, light)).ok
        bad = places(root)[4][0]
        damage(root, bad, *DAMAGES[kind])
        MessageStore.open(root, config, recovery=RecoveryOptions(pass_over=[bad])).close()
        MessageStore.open(root, config, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES)).close()
        with MessageStore.open(root, config) as store:
            for topic, gone in (("t", 4), ("%LMQ%a", 4), ("%LMQ%1", 1)):
                result = store.get_message(topic, 0, 0)
                assert [damaged.queue_offset for damaged in result.damaged] == [gone]
                assert result.next_begin_offset == store.max_offset(topic, 0)
            assert [finding for finding in store.check() if finding.damage] == []


def test_with_a_crc_over_the_whole_record_the_filler_has_one(tmp_path: Path) -> None:
    config = CONFIG.model_copy(
        update={"enabled_append_prop_crc": True, "force_verify_prop_crc": True}
    )
    for kind in ("body", "all"):
        root = tmp_path / kind
        with MessageStore.open(root, config, backend="file") as store:
            for number in range(9):
                assert store.put_message(message(number)).ok
        bad = places(root)[4][0]
        damage(root, bad, *DAMAGES[kind])
        MessageStore.open(root, config, recovery=RecoveryOptions(pass_over=[bad])).close()
        with MessageStore.open(root, config, read_only=True) as store:
            components_of(store).log.message(bad).check_property_crc()
            assert [finding for finding in store.check() if finding.damage] == []


def test_the_last_record_can_be_passed_over(root: Path) -> None:
    bad, size = places(root)[-1]
    damage(root, bad, 0, 88)
    with MessageStore.open(root, CONFIG, recovery=RecoveryOptions(pass_over=[bad])) as store:
        assert store.max_phy_offset() == bad + size
        assert store.put_message(message(COUNT + 2)).queue_offset == COUNT // 3
    assert seen(root)["other", 0][-2] == "gone"


def test_several_are_passed_over_at_once(root: Path) -> None:
    wanted = [places(root)[at][0] for at in (3, 4, 5, 20)]
    for bad in wanted:
        damage(root, bad, 0, 150)
    with pytest.raises(RefusedStoreError, match=f"--pass-over {wanted[3]}"):
        MessageStore.open(root, CONFIG, recovery=RecoveryOptions(pass_over=wanted[:3]))
    with MessageStore.open(
        root, CONFIG, recovery=RecoveryOptions(pass_over=wanted)
    ) as store:  # the first ones once more
        assert len(store.report.passed_over) == 1
    assert sum(texts.count("gone") for texts in seen(root).values()) == 4


@pytest.mark.parametrize("kind", ["body", "all"])
def test_a_record_that_no_queue_knows_keeps_its_place(root: Path, kind: str) -> None:
    bad, _ = places(root)[BAD]
    damage(root, bad, *DAMAGES[kind])
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    backend = "rocksdb" if (root / "consumequeue" / "CURRENT").exists() else "file"
    shutil.rmtree(root / "consumequeue")
    with MessageStore.open(
        root, CONFIG, backend=backend, recovery=RecoveryOptions(pass_over=[bad])
    ) as store:
        assert store.report.passed_over[0].place == ("t", 0, BAD // 3)
    assert seen(root)["t", 0].count("gone") == 1


def test_one_that_is_last_and_unknown_leaves_no_unit(root: Path) -> None:
    bad, _ = places(root)[-2]  # the last of its queue
    damage(root, bad, 0, 150)
    (root / "abort").touch()
    backend = "rocksdb" if (root / "consumequeue" / "CURRENT").exists() else "file"
    shutil.rmtree(root / "consumequeue")
    with MessageStore.open(
        root, CONFIG, backend=backend, recovery=RecoveryOptions(pass_over=[bad])
    ) as store:
        assert store.report.passed_over[0].place is None
        assert store.max_offset("t", 1) == COUNT // 3 - 1
        found = components_of(store).log.message(bad)
        assert found.topic == UNKNOWN_TOPIC
        assert found.tail[:2] == (0, 0)  # neither consumed again nor the end of a transaction
        assert UNKNOWN_TOPIC not in store.topics()


def test_what_is_sound_is_not_passed_over(root: Path) -> None:
    good, size = places(root)[BAD]
    with unchanged(root / "commitlog"):
        for at in (good, good + 1, good + size * 1000):
            with pytest.raises(StoreConfigError, match=f"not damaged at {at}"):
                MessageStore.open(root, CONFIG, recovery=RecoveryOptions(pass_over=[at]))


@pytest.mark.parametrize("exit_ok", [True, False])
def test_the_end_of_a_sound_log_is_refused_before_anything_is_written(
    root: Path, *, exit_ok: bool
) -> None:
    end = sum(places(root)[-1])
    if not exit_ok:
        (root / "abort").touch()
    before = tree_digest(root)
    with pytest.raises(StoreConfigError, match=f"not damaged at {end}: it ends there"):
        MessageStore.open(root, CONFIG, recovery=RecoveryOptions(pass_over=[end]))
    assert tree_digest(root) == before


def test_a_last_record_that_was_on_disk_is_passed_over(root: Path) -> None:
    """The log seems to end before it; the queues say that it does not."""
    last, size = places(root)[-1]
    damage(root, last, 0, size)
    with MessageStore.open(root, CONFIG, recovery=RecoveryOptions(pass_over=[last])) as store:
        assert [passed.phy_offset for passed in store.report.passed_over] == [last]


@pytest.mark.parametrize("written", [0, 1, 60, 100])
def test_a_pass_that_was_cut_short_is_done_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    bad, _ = places(root)[BAD]
    spoilt = damage(root, bad, 0, 100)
    original = MappedFile.rewrite

    def rewrite(file: MappedFile, position: int, data: bytes) -> None:
        original(file, position, data[:written])
        raise KeyboardInterrupt

    monkeypatch.setattr(MappedFile, "rewrite", rewrite)
    with pytest.raises(KeyboardInterrupt):
        MessageStore.open(root, CONFIG, recovery=RecoveryOptions(pass_over=[bad]))
    monkeypatch.setattr(MappedFile, "rewrite", original)
    with MessageStore.open(root, CONFIG) as store:
        assert [passed.phy_offset for passed in store.report.passed_over] == [bad]
        assert store.max_offset("t", 0) == COUNT // 3
    assert not (root / "cqstore" / "passing-over").exists()
    assert (root / LOG).read_bytes()[:bad] == spoilt[:bad]
    saved = sorted((root / "cqstore" / "cut").iterdir())
    assert spoilt[bad : bad + 100] in saved[0].read_bytes()


def test_a_pass_that_was_cut_short_is_no_other_records(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one it was begun for is whole again meanwhile, as after a copy was put back."""
    whole, (bad, _), (other, _) = (
        (root / LOG).read_bytes(),
        places(root)[BAD],
        places(root)[BAD + 4],
    )
    damage(root, bad, BODY + 5, 1)

    def stop(file: MappedFile, position: int, data: bytes) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "rewrite", stop)
        with pytest.raises(KeyboardInterrupt):
            MessageStore.open(root, CONFIG, recovery=RecoveryOptions(pass_over=[bad]))
    (root / LOG).write_bytes(whole)
    damage(root, other, BODY + 5, 1)
    with MessageStore.open(root, CONFIG, recovery=RecoveryOptions(pass_over=[other])) as store:
        assert [passed.phy_offset for passed in store.report.passed_over] == [other]
        assert store.message_by_offset(bad).body == message(BAD).body
        assert len(list(components_of(store).log.scan(0))) == COUNT


def test_a_note_that_is_no_filler_is_refused(root: Path) -> None:
    bad, size = places(root)[BAD]
    before = (root / LOG).read_bytes()
    record = before[bad : bad + size]
    note = root / "cqstore" / "passing-over"
    for content in (b"", b"?" * 200, record):
        note.write_bytes(content)
        with pytest.raises(CorruptionError, match="Move this file away"):
            MessageStore.open(root, CONFIG)
    note.unlink()
    MessageStore.open(root, CONFIG).close()
    assert (root / LOG).read_bytes() == before


def test_a_unit_of_a_wrong_size_takes_no_record_behind_with_it(root: Path) -> None:
    if (root / "consumequeue" / "CURRENT").exists():
        return  # its tables have checksums
    (bad, size), (behind, _) = places(root)[BAD : BAD + 2]
    damage(root, bad, 0, 100)
    path = root / "consumequeue" / "t" / "0" / ("0" * 20)
    data = bytearray(path.read_bytes())
    at = BAD // 3 * 20 + 8
    assert int.from_bytes(data[at : at + 4], "big") == size
    data[at : at + 4] = (10 * size).to_bytes(4, "big")
    path.write_bytes(data)
    with MessageStore.open(root, CONFIG, recovery=RecoveryOptions(pass_over=[bad])) as store:
        (passed,) = store.report.passed_over
        assert passed.phy_offset + passed.size == behind
        assert components_of(store).log.message(behind).body == message(BAD + 1).body


def test_a_filler_is_a_record_of_the_format(root: Path) -> None:
    bad, size = places(root)[BAD]
    damage(root, bad, *DAMAGES["body"])
    MessageStore.open(root, CONFIG, recovery=RecoveryOptions(pass_over=[bad])).close()
    data = (root / LOG).read_bytes()[bad : bad + size]
    with MessageStore.open(root, read_only=True) as store:
        found = components_of(store).log.message(bad)
    expected = PlainRecord(
        topic=b"t", body=found.body, properties=found.properties_bytes, queue_id=0,
        queue_offset=BAD // 3, phy_offset=bad, sys_flag=0x40000000,
        born_timestamp=found.head.born_timestamp, born_host=found.born_host.wire,
        store_timestamp=found.store_timestamp, store_host=found.store_host.wire,
    )  # fmt: skip
    assert data == expected.encode()
    assert found.properties["TAGS"] == f"tag{BAD}"
    assert found.body.startswith(b"This message was damaged")


def test_no_message_may_look_like_a_filler(root: Path) -> None:
    with MessageStore.open(root, CONFIG) as store:
        result = store.put_message(Message("t", b"x", sys_flag=int(SysFlag.PASSED_OVER)))
        assert result.status is PutMessageStatus.MESSAGE_ILLEGAL


def test_the_command_passes_over_one(root: Path) -> None:
    bad, _ = places(root)[BAD]
    damage(root, bad, *DAMAGES["body"])
    done = CliRunner().invoke(app, ["recover", str(root), "--pass-over", str(bad)])
    assert done.exit_code == 0, done.output
    assert str(bad) in done.stdout
    assert CliRunner().invoke(app, ["check", str(root)]).exit_code == 0
