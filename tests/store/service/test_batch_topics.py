"""BatchCQ topics: inner batches that are put are stored as RocketMQ stores them."""

import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any

import pytest

from cqstore.cli.message_files.message_fields import read_messages
from cqstore.store.errors import IllegalMessageError, QueueGapError, RefusedStoreError
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Message, SysFlag
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import GetMessageStatus, PutMessageStatus
from cqstore.store.settings.config import StoreConfig
from tests.kit.crash_images import crash_image
from tests.kit.golden import load_dump
from tests.kit.log_bytes import log_of, pieces
from tests.kit.tree import unchanged

Golden = Callable[[str], Path]
CONFIG = StoreConfig(
    mapped_file_size_commit_log=8192, mapped_file_size_consume_queue=400,
    mapper_file_size_batch_consume_queue=138, max_hash_slot_num=50, max_index_num=100,
    enable_lmq=True, enable_multi_dispatch=True,
)  # fmt: skip
UNIT = Struct(">qiqqqhii")
INNER = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
SPECIAL = "special-default"


def inner_batch(topic: str, size: int, queue_id: int = 0, **properties: str) -> Message:
    body = encode_client_batch([Message("", b"%d" % at, 0, {"at": str(at)}) for at in range(size)])
    properties = {"INNER_NUM": str(size), **properties}
    return Message(topic, body, queue_id, properties, sys_flag=INNER)


def put(store: MessageStore, size: int, queue_id: int = 0, topic: str = "b") -> int:
    result = store.put_message(inner_batch(topic, size, queue_id))
    assert result.status is PutMessageStatus.PUT_OK, result.reason
    return result.queue_offset


def created(root: Path, topic: str = "b") -> MessageStore:
    store = MessageStore.open(root, CONFIG, backend="file", housekeeping=False)
    store.create_batch_topic(topic)
    return store


def units(root: Path) -> dict[str, list[Any]]:
    """Return the rows of each queue of batch units as they are on disk, but for zeros."""
    folder = root / "batchconsumequeue"
    found: dict[str, list[Any]] = {}
    for path in sorted(folder.glob("*/*/*")):
        rows = found.setdefault(str(path.parent.relative_to(folder)), [])
        rows += [row for row in UNIT.iter_unpack(path.read_bytes()) if any(row)]
    return found


def damage(store: MessageStore) -> list[object]:
    return [finding for finding in store.check() if finding.damage]


def test_messages_of_rocketmq_put_again_are_stored_the_same(golden: Golden, tmp_path: Path) -> None:
    """The dump has what RocketMQ stored; positions and times in the log alone are others."""
    dump, root = load_dump(SPECIAL), golden(SPECIAL)
    (topic,) = {queue["topic"] for queue in dump["queues"] if queue["type"] == "BatchCQ"}
    shown = [message for message in dump["messages"] if message["topic"] == topic]
    assert len(shown) == 12
    config = StoreConfig(
        mapped_file_size_commit_log=1 << 18, mapped_file_size_consume_queue=2000,
        mapper_file_size_batch_consume_queue=460, max_hash_slot_num=500, max_index_num=2000,
    )  # fmt: skip
    with (
        MessageStore.open(root, read_only=True) as theirs,
        MessageStore.open(tmp_path / "own", config, backend="file") as own,
    ):
        own.create_batch_topic(topic)
        for message in shown:
            check_put_again(components_of(theirs).log.message(message["phy"]), message, own)
        for probe in dump["probes"]:
            for pull in probe["pulls"] if probe["topic"] == topic else ():
                found = own.get_message(topic, probe["queueId"], pull[0], 32)
                offsets = [each.queue_offset for each in found.messages()]
                ends = found.min_offset, found.max_offset
                assert [
                    pull[0], found.status.name, found.next_begin_offset, *ends, offsets
                ] == pull  # fmt: skip
        assert damage(own) == []
    here, there = units(tmp_path / "own"), units(root)
    assert here.keys() == there.keys()
    for key, rows in there.items():  # size, tags code, base, number, compacted offset, reserved
        wanted = [(row[1], row[2], *row[4:]) for row in rows]
        assert [(row[1], row[2], *row[4:]) for row in here[key]] == wanted


def check_put_again(record: StoredMessage, message: dict[str, Any], own: MessageStore) -> None:
    """Put what RocketMQ stored; compare the new record with its dump."""
    properties = {k: v for k, v in message["properties"].items() if k != "INNER_BASE"}
    result = own.put_message(
        Message(
            record.topic,
            bytes(record.stored_body),
            record.queue_id,
            properties,
            record.head.flag,
            record.sys_flag,
            record.head.born_timestamp,
            record.born_host,
            record.store_host,
        )
    )
    assert result.status is PutMessageStatus.PUT_OK, result.reason
    assert result.queue_offset == message["queueOffset"]
    assert result.appended is not None
    assert result.appended.size == message["storeSize"]
    stored = components_of(own).log.message(result.phy_offset)
    assert stored.properties == message["properties"]
    assert bytes(stored.stored_body) == bytes(record.stored_body)
    assert (stored.sys_flag, stored.queue_offset) == (message["sysFlag"], message["queueOffset"])


def test_offsets_count_messages_and_go_on_after_any_end(tmp_path: Path) -> None:
    root, sizes = tmp_path / "store", [3, 1, 30, 2, 5, 1, 4]
    store, expected = created(root), 0
    for number, size in enumerate(sizes):
        assert put(store, size) == expected
        assert put(store, 2, 1) == 2 * number
        expected += size
        if number == 2:
            store.close()
            store = MessageStore.open(root, CONFIG, housekeeping=False)
        if number == 4:
            image = crash_image(root, tmp_path / "image")
            store.close()
            store = MessageStore.open(image, CONFIG, housekeeping=False)
            assert store.report.needed
    assert store.max_offset("b", 0) == expected
    assert store.max_offset("b", 1) == 14
    assert damage(store) == []
    pulled = store.get_message("b", 0, 1, 32)
    assert pulled.status is GetMessageStatus.FOUND
    (first, *_) = pulled.messages()
    assert (first.queue_offset, first.properties["INNER_BASE"]) == (0, "0")
    image = store.root
    store.close()
    rows = units(image)
    bases = [sum(sizes[:at]) for at in range(len(sizes))]
    assert [row[4:] for row in rows["b/0"]] == [
        (base, size, -1, 0) for base, size in zip(bases, sizes, strict=True)
    ]


def test_each_message_of_an_inner_batch_has_its_offset_for_consumers(tmp_path: Path) -> None:
    with created(tmp_path) as store:
        put(store, 2)
        put(store, 3)
        found = [
            (read.queue_offset, bytes(read.message.body))
            for record in store.get_message("b", 0, 0, 32).messages()
            for read in read_messages(record.queue_offset, record)
        ]
    assert found == [(0, b"0"), (1, b"1"), (2, b"0"), (3, b"1"), (4, b"2")]


def test_a_check_compares_the_numbers_of_messages(tmp_path: Path) -> None:
    with created(tmp_path) as store:
        put(store, 3)
        put(store, 2)
    path = tmp_path / "batchconsumequeue" / "b" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[46 + 37] = 9
    path.write_bytes(data)
    with MessageStore.open(tmp_path, CONFIG, read_only=True) as store:
        (found,) = damage(store)
    assert "the unit has 9 messages, but its record has 2 from offset 3" in str(found)


@pytest.mark.parametrize("lost", ["nothing", "units", "queues", "topic"])
def test_a_replay_of_the_log_restores_batch_queues(tmp_path: Path, lost: str) -> None:
    root = tmp_path / "store"
    with created(root) as store:
        for size in (3, 1, 5, 2):
            put(store, size)
            assert store.put_message(Message("t", b"x")).ok
    before = units(root)
    folder = root / "batchconsumequeue"
    if lost == "units":
        (folder / "b" / "0" / f"{138:020d}").unlink()
    elif lost != "nothing":
        shutil.rmtree(folder / "b" / "0" if lost == "queues" else folder)
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").unlink()
    (root / "abort").touch()
    with MessageStore.open(root, CONFIG) as store:
        assert components_of(store).queues.queue_type("b") is QueueType.BATCH
        assert store.max_offset("b", 0) == 11
        assert store.max_offset("t", 0) == 4
        assert put(store, 1) == 11
        assert damage(store) == []
    assert {key: rows[:-1] for key, rows in units(root).items()} == before


@pytest.mark.parametrize("most", [100, 300, 5000])
def test_a_followed_log_gives_the_same_batch_queues(tmp_path: Path, most: int) -> None:
    with created(tmp_path / "leader") as leader:
        for size in (3, 1, 5, 2):
            put(leader, size)
            put(leader, size, 7)
            assert leader.put_message(Message("t", b"x")).ok
        data = log_of(leader)
    with MessageStore.open(tmp_path / "own", CONFIG, backend="file") as own:
        rest, end = b"", 0
        for piece in pieces(data, most):
            rest += piece
            before, end = end, own.append_to_commit_log(end, rest)
            rest = rest[end - before :]
        assert put(own, 4) == 11
        assert not own.put_message(Message("b", b"plain")).ok
    own_units = units(tmp_path / "own")
    assert own_units.pop("b/0")[:-1] == units(tmp_path / "leader").pop("b/0")
    assert own_units == {"b/7": units(tmp_path / "leader")["b/7"]}


def test_a_followed_log_with_a_gap_in_a_batch_queue_is_refused(tmp_path: Path) -> None:
    with created(tmp_path / "leader") as leader:
        put(leader, 3)
        first = leader.max_phy_offset()
        put(leader, 2)
        second = leader.max_phy_offset()
        put(leader, 1)
        data = log_of(leader)
    (tmp_path / "own").mkdir()
    with MessageStore.open(tmp_path / "own", CONFIG, backend="file") as own:
        assert own.append_to_commit_log(0, data[:first]) == first
        moved = bytearray(data[second:])
        moved[28:36] = first.to_bytes(8, "big")  # its physical offset
        with pytest.raises(QueueGapError, match="expected queue offset 3, found queue offset 5"):
            own.append_to_commit_log(first, bytes(moved))


# ---- refusals


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("b", b"plain"), "no consumer would get a plain message"),
        (inner_batch("t", 2), "'t' is not one"),
        (Message("b", b"", sys_flag=INNER), "needs INNER_NUM, 1 to 32767: found None"),
        (inner_batch("b", 2, INNER_NUM="0"), "found '0'"),
        (inner_batch("b", 2, INNER_NUM="32768"), "found '32768'"),
        (inner_batch("b", 2, INNER_NUM="two"), "found 'two'"),
        (Message("b", b"", 0, {"INNER_NUM": "2"}), "INNER_NUM without the inner batch flag"),
        (inner_batch("b", 2, INNER_MULTI_DISPATCH="%LMQ%a"), "cannot be in light queues"),
        (inner_batch("b", 2, X="x" * 32_740), "properties too long"),
        (inner_batch("b", 2, -1), "queue_id"),
        (Message("b", b"", 0, {"INNER_NUM": "2"}, sys_flag=INNER | 0x4), "prepared"),
        (Message("b", b"", 0, {"INNER_NUM": "2"}, sys_flag=INNER | 0xC), "rolled back"),
    ],
)
@pytest.mark.parametrize("how", ["one", "list"])
def test_what_a_batch_topic_cannot_store_is_refused(
    tmp_path: Path, message: Message, reason: str, how: str
) -> None:
    with created(tmp_path) as store:
        put(store, 2)
        end = store.max_phy_offset()
        if how == "one":
            result = store.put_message(message)
        else:
            before, result, after = store.put_messages(
                [inner_batch("b", 1), message, inner_batch("b", 1)]
            )
            assert (before.queue_offset, after.queue_offset) == (2, 3)
            end = store.max_phy_offset()
        assert not result.ok
        assert reason in result.reason
        assert store.max_phy_offset() == end
        assert put(store, 1) == (2 if how == "one" else 4)


def test_an_inner_batch_cannot_be_delayed(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"enable_schedule_message_service": True})
    with MessageStore.open(tmp_path, config, backend="file") as store:
        store.create_batch_topic("b")
        result = store.put_message(inner_batch("b", 2, DELAY="1"))
        assert "cannot be delayed" in result.reason
        assert store.max_phy_offset() == 0


def test_properties_overwrite_no_offset(tmp_path: Path) -> None:
    with created(tmp_path) as store:
        put(store, 2)
        result = store.put_message(inner_batch("b", 2, INNER_BASE="7", INNER_NUM="+2"))
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, 2)
        (record,) = store.get_message("b", 0, 2, 1).messages()
        assert record.properties["INNER_BASE"] == "2"
        assert store.max_offset("b", 0) == 4
        assert store.put_message(inner_batch("b", 1, INNER_NUM="32767")).queue_offset == 4
        assert put(store, 1) == 4 + 32_767


def test_a_client_batch_becomes_an_inner_batch_as_in_a_broker(tmp_path: Path) -> None:
    body = encode_client_batch([Message("", b"x") for _ in range(3)])
    with created(tmp_path) as store:
        (result,) = store.put_client_batch(Message("b", body, 0, {"UNIQ_KEY": "id"}))
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, 0)
        (record,) = store.get_message("b", 0, 0, 32).messages()
        assert record.sys_flag == INNER
        assert record.properties == {"UNIQ_KEY": "id", "INNER_NUM": "3", "INNER_BASE": "0"}
        assert bytes(record.stored_body) == body
        assert store.max_offset("b", 0) == 3
        assert [m.queue_offset for m in store.query_message("b", "id", 9)] == [0]
        (refused,) = store.put_client_batch(Message("b", body))
        assert "needs a UNIQ_KEY" in refused.reason
        (refused,) = store.put_client_batch(Message("b", body[:-1], 0, {"UNIQ_KEY": "id"}))
        assert refused.status is ILLEGAL


# ---- types of topics


def test_a_topic_is_of_one_type_until_it_is_deleted(tmp_path: Path) -> None:
    with created(tmp_path) as store:
        assert store.put_message(Message("t", b"x")).ok
        with pytest.raises(RefusedStoreError, match="it has queues with one unit per message"):
            store.create_batch_topic("t")
        put(store, 3)
        store.create_batch_topic("b")  # nothing is to be done
        assert store.max_offset("b", 0) == 3
        store.delete_topics(["b", "t"])
        assert "'b' is not one" in store.put_message(inner_batch("b", 2)).reason
        store.create_batch_topic("t")
        assert put(store, 2, topic="t") == 0
        assert not store.put_message(Message("t", b"x")).ok
        assert store.put_message(Message("b", b"x")).queue_offset == 0
    (tmp_path / "abort").touch()
    with MessageStore.open(tmp_path, CONFIG) as store:
        types = {
            key: components_of(store).queues.queue_type(key.topic) for key in store.queue_keys()
        }
        assert types == {QueueKey("b", 0): QueueType.SIMPLE, QueueKey("t", 0): QueueType.BATCH}
        assert damage(store) == []


def test_the_metadata_of_a_broker_names_batch_topics(tmp_path: Path) -> None:
    given = {"b": {"queue.type": "BatchCQ"}, "t": {}, "s": {"x": "BatchCQ"}}
    rows = {
        name: {"topicName": name, "attributes": attributes, "readQueueNums": 1, "writeQueueNums": 1}
        for name, attributes in given.items()
    }
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": rows}))
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        assert "BatchCQ topic" in store.put_message(Message("b", b"plain")).reason
        body = encode_client_batch([Message("", b"x"), Message("", b"y")])
        (first,) = store.put_client_batch(Message("b", body, 0, {"UNIQ_KEY": "u"}))
        assert (first.status, first.queue_offset) == (PutMessageStatus.PUT_OK, 0)
        assert put(store, 1) == 2
        for name in ("t", "s", "unknown"):
            assert store.put_message(inner_batch(name, 1)).status is ILLEGAL
            assert store.put_message(Message(name, b"x")).ok
            assert store.put_message(inner_batch(name, 1)).status is ILLEGAL


def test_damaged_metadata_stops_inner_batches_alone(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(b"{")
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        assert store.put_message(Message("t", b"x")).ok
        with pytest.raises(Exception, match=r"topics\.json"):
            store.put_message(inner_batch("b", 1))
        store.create_batch_topic("b")
        assert put(store, 2) == 0


def test_rocksdb_has_no_batch_topics(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="rocksdb") as store:
        with unchanged(tmp_path):
            with pytest.raises(IllegalMessageError, match="and a broker loses messages"):
                store.create_batch_topic("b")
            assert "'b' is not one" in store.put_message(inner_batch("b", 2)).reason
        assert store.put_message(Message("b", b"x")).ok


def test_a_batch_may_be_compressed(tmp_path: Path) -> None:
    message = inner_batch("b", 3)
    message.body = zlib.compress(bytes(message.body))
    message.sys_flag |= SysFlag.COMPRESSED | 3 << 8
    with created(tmp_path) as store:
        assert store.put_message(message).queue_offset == 0
        (record,) = store.get_message("b", 0, 0, 32).messages()
        bodies = [bytes(read.message.body) for read in read_messages(0, record)]
    assert bodies == [b"0", b"1", b"2"]
