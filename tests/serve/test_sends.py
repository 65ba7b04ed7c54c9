"""Sends over a socket: what is acknowledged is in the store, field by field; refusals by name."""

import asyncio
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cqstore.serve.broker_stats import BrokerStats
from cqstore.serve.store_writer import WriteSettings
from cqstore.serve.unique_key import new_unique_key
from cqstore.store.record.message_id import decode_message_id
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import FlushDiskType
from tests.kit.gated_disk import gated
from tests.kit.remoting_client import BINARY, JSON, ONEWAY, Client, pull
from tests.kit.remoting_server import with_limits
from tests.kit.sends import BATCH, BORN, SEND, SEND_V2, batch_of, sent, text_of
from tests.kit.waiting import becomes, run
from tests.kit.writable_server import writing
from tests.serve.conftest import CONFIG

OK, ERROR, BUSY, ILLEGAL, FORBIDDEN, NO_TOPIC, INVALID = 0, 1, 2, 13, 16, 17, 29
DELIVERS = CONFIG.model_copy(update={"enable_schedule_message_service": True})


@pytest.fixture(params=["file", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessageStore]:
    """An empty store of each backend that delivers delays."""
    with MessageStore.open(tmp_path / "store", DELIVERS, backend=request.param) as opened:
        yield opened


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", DELIVERS) as opened:
        yield opened


def bodies(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    """Return the bodies in a queue, in order."""
    found: list[bytes] = []
    while messages := store.get_message(topic, queue_id, len(found)).messages():
        found += [bytes(each.body) for each in messages]
    return found


@pytest.mark.parametrize("form", [JSON, BINARY])
@pytest.mark.parametrize("code", [SEND, SEND_V2])
def test_what_is_acknowledged_is_in_the_store(store: MessageStore, code: int, form: int) -> None:
    async def story() -> None:
        async with writing(store) as found:
            client = await found.client()
            fields = sent("orders", {"TAGS": "red", "KEYS": "k1 k2"}, v2=code == SEND_V2)
            answer = await client.ask(code, fields, b"body \xff\x00", form)
            assert (answer.code, answer.remark, answer.form) == (OK, "", form)
            message_id = answer.fields.pop("msgId")
            assert answer.fields == {
                "queueId": "1", "queueOffset": "0", "transactionId": "U1",
                "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
            }  # fmt: skip
            host, phy_offset = decode_message_id(message_id)
            assert (host.address, host.port) == ("127.0.0.1", found.port)
            stored = store.message_by_offset(phy_offset)
            assert (stored.topic, stored.queue_id, stored.queue_offset) == ("orders", 1, 0)
            assert stored.body == b"body \xff\x00"
            assert (stored.head.flag, stored.head.born_timestamp) == (7, BORN)
            sock = client.writer.get_extra_info("sockname")
            assert (stored.born_host.address, stored.born_host.port) == sock
            assert stored.properties == {
                "UNIQ_KEY": "U1", "WAIT": "true", "TAGS": "red", "KEYS": "k1 k2",
                "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "c",
            }  # fmt: skip
            for key in ("k1", "k2", "U1"):
                assert [each.body for each in store.query_message("orders", key)] == [stored.body]
            pulled = await client.ask(11, pull("orders", 1, 0))
            assert (pulled.code, pulled.body) == (OK, bytes(stored.record))

    run(story())


def test_one_way_messages_keep_their_order(file_store: MessageStore) -> None:
    async def story() -> None:
        async with writing(file_store) as found:
            client = await found.client()
            for number in range(200):
                client.send(SEND_V2, sent(v2=True), b"%d" % number, flag=ONEWAY)
            answer = await client.ask(SEND_V2, sent(v2=True), b"last")
            assert answer.fields["queueOffset"] == "200"
            found_bodies = bodies(file_store, "t", 1)
            assert found_bodies == [b"%d" % number for number in range(200)] + [b"last"]

    run(story())


def test_statistics_count_what_clients_send_and_pull(store: MessageStore) -> None:
    now = 0.0

    async def story() -> None:
        nonlocal now
        async with writing(store) as found:
            found.broker.stats = BrokerStats("c", lambda: now)
            client = await found.client()

            async def sums(name: str, key: str) -> list[float]:
                answer = await client.ask(315, {"statsName": name, "statsKey": key})
                row = answer.json["statsMinute"]
                return [row["sum"], row["tps"], row["avgpt"]]

            for number in range(3):
                assert (await client.ask(SEND, sent("t", {"KEYS": f"k{number}"}), b"x")).code == OK
            batch = batch_of(b"0", b"1")
            assert (await client.ask(BATCH, sent("t", v2=True, batch="true"), batch)).code == OK
            assert (await client.ask(SEND, sent("t", {"DELAY": "9"}), b"x")).code == OK
            assert (await client.ask(SEND, sent("t", {"DELAY": "x"}), b"x")).code != OK
            pulled = await client.ask(11, pull("t", 1, 0))
            assert (await client.ask(11, pull("t", 1, 5))).code == 19
            now, sizes = 10.0, len(pulled.body)
            assert await sums("TOPIC_PUT_NUMS", "t") == [5, 0.5, 1.25]
            assert (await sums("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX"))[0] == 1
            assert await sums("BROKER_PUT_NUMS", "c") == [6, 0.6, 0.0]
            assert await sums("GROUP_GET_NUMS", "t@g") == [5, 0.5, 5.0]
            assert await sums("GROUP_GET_SIZE", "t@g") == [sizes, sizes / 10, sizes]
            assert (await client.ask(202, {"topic": "t"})).json["topicPutTps"] == 0.5
            lag = (await client.ask(208, {"consumerGroup": "g", "topic": "t"})).json
            assert lag["consumeTps"] == 0.5

    run(story())


@pytest.mark.parametrize("form", [JSON, BINARY])
def test_a_batch_is_one_put(store: MessageStore, form: int) -> None:
    async def story() -> None:
        async with writing(store) as found:
            client = await found.client()
            await client.ask(SEND_V2, sent(v2=True), b"first")
            fields = sent(v2=True, batch="true")
            body = batch_of(b"a", b"", b"c" * 500, properties=text_of({"TAGS": "x"}))
            answer = await client.ask(BATCH, fields, body, form)
            assert (answer.code, answer.fields["queueOffset"]) == (OK, "1")
            assert answer.fields["transactionId"] == "U1"
            ids = [decode_message_id(each)[1] for each in answer.fields["msgId"].split(",")]
            messages = [store.message_by_offset(each) for each in ids]
            assert [each.body for each in messages] == [b"a", b"", b"c" * 500]
            assert [each.queue_offset for each in messages] == [1, 2, 3]
            assert {each.head.flag for each in messages} == {5}
            assert all(each.properties["TAGS"] == "x" for each in messages)
            for wrong in (b"", body[:-1], b"\xff" * 40, struct.pack(">i", 2**31 - 1) * 9):
                refused = await client.ask(BATCH, fields, wrong, form)
                assert (refused.code, "not stored" in refused.remark) == (ILLEGAL, True)
            assert store.max_offset("t", 1) == 4

    run(story())


@pytest.mark.slow
def test_a_delayed_message_waits_in_the_schedule(file_store: MessageStore) -> None:
    async def story() -> None:
        async with writing(file_store) as found:
            client = await found.client()
            answer = await client.ask(SEND_V2, sent("t", {"DELAY": "1"}, v2=True), b"later")
            assert (answer.code, answer.fields["queueId"]) == (OK, "1")
            _, phy_offset = decode_message_id(answer.fields["msgId"])
            waits = file_store.message_by_offset(phy_offset)
            assert (waits.topic, waits.queue_id) == ("SCHEDULE_TOPIC_XXXX", 0)
            assert waits.properties["REAL_TOPIC"] == "t"
            waiting = client.send(11, pull("t", 1, 0, wait_ms=60_000))
            arrived = await client.answer(waiting)  # a second later
            assert (arrived.code, arrived.remark) == (OK, "FOUND")
            (delivered,) = file_store.get_message("t", 1, 0).messages()
            assert delivered.body == b"later"
            assert delivered.store_timestamp - waits.store_timestamp >= 1000

    run(story())


def test_a_waiting_pull_gets_the_message_that_is_sent(store: MessageStore) -> None:
    async def story() -> None:
        async with writing(store) as found:
            one, two = await found.client(), await found.client()
            await one.ask(SEND, sent(), b"0")
            number = two.send(11, pull("t", 1, 1, wait_ms=100_000))
            await becomes(lambda: len(found.server.held) == 1)
            await one.ask(SEND, sent(), b"1")
            assert (await two.answer(number)).body.count(b"UNIQ_KEY") == 1

    run(story())


# ---- refusals


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"producerGroup": None}, ERROR, "producerGroup is missing"),
    ({"topic": None}, ERROR, "topic is missing"),
    ({"topic": ""}, ERROR, "0 characters"),
    ({"defaultTopic": None}, ERROR, "defaultTopic is missing"),
    ({"defaultTopicQueueNums": None}, ERROR, "defaultTopicQueueNums is missing"),
    ({"queueId": None}, ERROR, "queueId is missing"),
    ({"queueId": "x"}, ERROR, "not a number"),
    ({"queueId": 2**31}, ERROR, "not a number"),
    ({"queueId": 4}, INVALID, "queue 4 of topic 't' does not exist: it has 4"),
    ({"sysFlag": None}, ERROR, "sysFlag is missing"),
    ({"bornTimestamp": None}, ERROR, "bornTimestamp is missing"),
    ({"flag": ""}, ERROR, "not a number"),
    ({"reconsumeTimes": "1e3"}, ERROR, "not a number"),
    ({"maxReconsumeTimes": "many"}, ERROR, "not a number"),
    ({"sysFlag": 4}, FORBIDDEN, "transactions are not supported"),
    ({"sysFlag": 8}, FORBIDDEN, "transactions are not supported"),
    ({"properties": text_of({"TRAN_MSG": "true"})}, FORBIDDEN, "transactions"),
    ({"properties": text_of({"TIMER_DELAY_SEC": "5"})}, ILLEGAL, "timer messages"),
    ({"properties": text_of({"DELAY": "soon"})}, ILLEGAL, "invalid delay level 'soon'"),
    ({"properties": text_of({"P": "x" * 32_800})}, ILLEGAL, "properties too long"),
    ({"sysFlag": 128}, ILLEGAL, "INNER_NUM"),
    ({"topic": "a/b"}, INVALID, "invalid topic name 'a/b'"),
    ({"topic": "x" * 128}, INVALID, "1 to 127"),
    ({"topic": "SCHEDULE_TOPIC_XXXX"}, FORBIDDEN, "is forbidden"),
    ({"topic": "%LMQ%a"}, FORBIDDEN, "is forbidden"),
    ({"topic": "rmq_sys_a"}, FORBIDDEN, "is forbidden"),
    ({"topic": "new", "defaultTopic": "t"}, NO_TOPIC, "the default topic is 't', not TBW102"),
    ({"topic": "new", "defaultTopicQueueNums": 0}, INVALID, "with 0 queues"),
    ({"topic": "%RETRY%g", "batch": "true", "queueId": 0}, ILLEGAL, "retry topic"),
]


@pytest.mark.parametrize("code", [SEND, SEND_V2])
def test_what_cannot_be_put_is_refused_and_changes_nothing(
    file_store: MessageStore, code: int
) -> None:
    async def story() -> None:
        async with writing(file_store) as found:
            client = await found.client()
            assert (await client.ask(SEND, sent(), b"0")).code == OK
            await client.ask(SEND, sent("%RETRY%g", queueId=0), b"0")
            end = file_store.max_phy_offset()
            for number, (changes, expected, why) in enumerate(REFUSED):
                words = why if code == SEND or "is missing" not in why else "is missing"
                fields = sent(v2=code == SEND_V2, **changes)
                answer = await client.ask(code, fields, b"x", number % 2)
                assert (answer.code, words in answer.remark) == (expected, True), (
                    changes, answer.code, answer.remark,
                )  # fmt: skip
            assert file_store.max_phy_offset() == end
            assert (await client.ask(SEND, sent(), b"1")).fields["queueOffset"] == "1"

    run(story())


def test_a_body_above_the_limit_is_read_past(file_store: MessageStore) -> None:
    limit = file_store.config.max_message_size

    async def story() -> None:
        async with writing(file_store) as found:
            client = await found.client()
            refused = await client.ask(SEND, sent(), b"x" * (limit + 1))
            assert (refused.code, f"{limit + 1} bytes" in refused.remark) == (ILLEGAL, True)
            assert file_store.max_phy_offset() == 0

    run(story())


def test_a_message_without_unique_key_gets_one(file_store: MessageStore) -> None:
    async def story() -> None:
        async with writing(file_store) as found:
            client = await found.client()
            keys = []
            for _ in range(2):
                answer = await client.ask(SEND, sent(properties=""), b"x")
                keys.append(answer.fields["transactionId"])
            first, second = file_store.get_message("t", 1, 0).messages()
            assert [first.properties["UNIQ_KEY"], second.properties["UNIQ_KEY"]] == keys
            assert {len(each) for each in keys} == {32}
            assert first.properties["UNIQ_KEY"] != second.properties["UNIQ_KEY"]
            bytes.fromhex(keys[0])
            assert len({new_unique_key() for _ in range(1000)}) == 1000

    run(story())


def test_a_negative_queue_is_any_queue(file_store: MessageStore) -> None:
    async def story() -> None:
        async with writing(file_store) as found:
            client = await found.client()
            chosen = set[str]()
            while len(chosen) < 4:
                answer = await client.ask(SEND, sent(queueId=-1), b"x")
                assert answer.code == OK
                chosen.add(answer.fields["queueId"])
            assert chosen == {"0", "1", "2", "3"}

    run(story())


def test_pop_check_points_of_clients_are_removed(file_store: MessageStore) -> None:
    async def story() -> None:
        async with writing(file_store) as found:
            client = await found.client()
            await client.ask(SEND, sent(properties=text_of({"POP_CK": "1 2 3", "A": "b"})), b"x")
            (stored,) = file_store.get_message("t", 1, 0).messages()
            assert stored.properties.keys() & {"POP_CK", "A"} == {"A"}

    run(story())


# ---- topics


def test_a_producer_finds_queues_and_creates_its_topic(file_store: MessageStore) -> None:
    async def story() -> None:
        async with writing(file_store) as found:
            client = await found.client()
            assert (await client.ask(105, {"topic": "new"})).code == NO_TOPIC
            default = (await client.ask(105, {"topic": "TBW102"})).json["queueDatas"][0]
            assert (default["perm"], default["writeQueueNums"]) == (6, 8)
            await client.ask(SEND_V2, sent("new", v2=True), b"x")
            made = (await client.ask(105, {"topic": "new"})).json["queueDatas"][0]
            assert made == {
                "brokerName": "b", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0,
                "writeQueueNums": 4,
            }  # fmt: skip
            await client.ask(SEND_V2, sent("wide", v2=True, defaultTopicQueueNums=16), b"x")
            assert (await client.ask(105, {"topic": "wide"})).json["queueDatas"][0][
                "writeQueueNums"
            ] == 8
            assert (await client.ask(206)).json["topicList"] == ["new", "wide"]

    run(story())
    assert '"new"' in (file_store.root / "config" / "topics.json").read_text()


def test_topics_are_not_created_beyond_a_limit(file_store: MessageStore) -> None:
    async def story() -> None:
        async with writing(file_store, settings=WriteSettings(max_new_topics=2)) as found:
            client = await found.client()
            for name in ("a", "b", "a"):
                assert (await client.ask(SEND, sent(name), b"x")).code == OK
            refused = await client.ask(SEND, sent("c"), b"x")
            assert refused.code == NO_TOPIC
            assert "the limit of 2 new topics is reached (--max-new-topics)" in refused.remark
            assert [*file_store.topics()] == ["a", "b"]

    run(story())


def test_topics_are_not_created_if_the_broker_would_not(file_store: MessageStore) -> None:
    async def story() -> None:
        async with writing(file_store, settings=WriteSettings(creates_topics=False)) as found:
            client = await found.client()
            assert (await client.ask(105, {"topic": "TBW102"})).code == NO_TOPIC
            refused = await client.ask(SEND, sent("new"), b"x")
            assert (refused.code, "autoCreateTopicEnable is false" in refused.remark) == (
                NO_TOPIC, True,
            )  # fmt: skip

    run(story())


def test_a_topic_that_is_not_writable_takes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    row = (
        '"topicName":"%s","perm":%d,"readQueueNums":2,"writeQueueNums":%d,"topicSysFlag":0,'
        '"topicFilterType":"%s","order":false,"attributes":{}'
    )
    rows = {
        "read": row % ("read", 4, 2, "SINGLE_TAG"),
        "drained": row % ("drained", 6, 0, "SINGLE_TAG"),
        "tags": row % ("tags", 6, 2, "MULTI_TAG"),
    }  # fmt: skip
    table = ",".join(f'"{name}":{{{each}}}' for name, each in rows.items())
    (root / "config" / "topics.json").write_text(
        f'{{"dataVersion":{{"counter":5,"stateVersion":0,"timestamp":1}},'
        f'"topicConfigTable":{{{table}}}}}'
    )

    async def story(store: MessageStore) -> None:
        async with writing(store) as found:
            client = await found.client()
            for name in ("read", "drained"):
                refused = await client.ask(SEND, sent(name), b"x")
                assert (refused.code, "is not writable" in refused.remark) == (FORBIDDEN, True)
            assert (await client.ask(SEND, sent("tags"), b"x")).code == OK
            (stored,) = store.get_message("tags", 1, 0).messages()
            assert stored.sys_flag == 2

    with MessageStore.open(root, DELIVERS) as store:
        run(story(store))


# ---- the disk


def test_under_sync_flush_an_acknowledged_message_is_on_disk(tmp_path: Path) -> None:
    config = DELIVERS.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})

    async def producer(store: MessageStore, client: Client, name: str) -> None:
        for number in range(20):
            answer = await client.ask(SEND_V2, sent(v2=True), f"{name}{number}".encode())
            assert answer.code == OK
            _, phy_offset = decode_message_id(answer.fields["msgId"])
            size = store.message_by_offset(phy_offset).size
            assert store.flushed_phy_offset() >= phy_offset + size
        fields = sent(v2=True, batch="true")
        answer = await client.ask(BATCH, fields, batch_of(b"1", b"2"))
        last = decode_message_id(answer.fields["msgId"].split(",")[1])[1]
        assert store.flushed_phy_offset() > last

    async def story(store: MessageStore) -> None:
        async with writing(store) as found:
            clients = [await found.client() for _ in range(8)]
            await asyncio.gather(*(
                producer(store, each, f"p{number}:") for number, each in enumerate(clients)
            ))  # fmt: skip
            assert store.max_offset("t", 1) == 8 * 22

    with MessageStore.open(tmp_path / "store", config) as store:
        run(story(store))


@pytest.mark.parametrize("is_batch", [False, True])
def test_no_message_is_acknowledged_before_the_disk_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_batch: bool
) -> None:
    config = DELIVERS.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    fields = sent(v2=True, batch=str(is_batch).lower())
    body = batch_of(b"1", b"2") if is_batch else b"1"
    disk = gated(monkeypatch)

    async def story(store: MessageStore) -> None:
        async with writing(store) as found:
            one, two = await found.client(), await found.client()
            await one.ask(SEND, sent(), b"0")
            disk.open.clear()
            syncs = disk.syncs
            number = one.send(BATCH, fields, body)
            await becomes(lambda: disk.syncs > syncs)
            for client in (two, one):  # others are answered meanwhile, and this client
                assert (await client.ask(105, {"topic": "t"})).code == OK
            assert [each.opaque for each in one.early] == []
            disk.open.set()
            assert (await one.answer(number)).code == OK

    with MessageStore.open(tmp_path / "store", config) as store:
        run(story(store))


def test_what_waits_for_the_disk_has_a_limit_and_is_acknowledged_at_the_end(
    tmp_path: Path,
) -> None:
    config = DELIVERS.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    limits = with_limits(put_bytes=20_000, put_bytes_per_address=20_000)

    async def story(store: MessageStore) -> None:
        async with writing(store, limits=limits) as found:
            client = await found.client()
            await client.ask(SEND, sent(), b"0")
            numbers = [client.send(SEND, sent(), b"x" * 4000) for _ in range(8)]
            await client.writer.drain()
            codes = [(await client.answer(each)).code for each in numbers]
            assert set(codes) == {OK, BUSY}
            assert store.max_offset("t", 1) == 1 + codes.count(OK)
            client = found.clients.pop()  # it stays connected
            numbers = [client.send(SEND, sent(), b"y") for _ in range(5)]
            await becomes(lambda: store.max_offset("t", 1) == 6 + codes.count(OK))
        # the server has ended: the responses were sent before
        codes = [(await client.answer(each)).code for each in numbers]
        assert codes == [OK] * 5
        client.close()
        await asyncio.sleep(0)

    with MessageStore.open(tmp_path / "store", config) as store:
        run(story(store))


def test_other_writes_and_transactions_are_refused_by_name(file_store: MessageStore) -> None:
    async def story() -> None:
        async with writing(file_store) as found:
            client = await found.client()
            ended = await client.ask(37)
            assert ended.code == FORBIDDEN
            assert "END_TRANSACTION (37) is refused: transactions are not" in ended.remark
            changed = await client.ask(17)
            assert "UPDATE_AND_CREATE_TOPIC (17) is refused: clients of this" in changed.remark
            pop = await client.ask(200_050)
            assert (pop.code, "POP is not supported" in pop.remark) == (3, True)
            other = await found.client()
            other.writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            assert await other.is_closed()
            assert any("gRPC is not supported" in each for each in found.events)

    run(story())
