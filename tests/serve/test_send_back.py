"""Messages that consumers send back: to the retry topic, later, and to the dead letters."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqstore.serve.store_writer import WriteSettings
from cqstore.store.record.message_id import decode_message_id
from cqstore.store.service.message_store import MessageStore
from tests.kit.remoting_client import BINARY, JSON, Client, pull
from tests.kit.sends import BACK, SEND, SEND_V2, sent, text_of
from tests.kit.waiting import run
from tests.kit.writable_server import writing
from tests.serve.conftest import CONFIG
from tests.serve.test_pulls import heartbeat

RETRY, DEAD = "%RETRY%g", "%DLQ%g"
DELIVERS = CONFIG.model_copy(
    update={"enable_schedule_message_service": True, "message_delay_level": "1s 1s 1s 2h 2h"}
)


@pytest.fixture(params=["file", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", DELIVERS, backend=request.param) as opened:
        yield opened


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", DELIVERS) as opened:
        yield opened


async def one_message(client: Client) -> int:
    """Send a message; return its phy offset."""
    answer = await client.ask(SEND, sent("t", {"TAGS": "red"}), b"body")
    return decode_message_id(answer.fields["msgId"])[1]


def back(phy_offset: int, **changes: object) -> dict[str, object]:
    fields = {
        "offset": phy_offset, "group": "g", "delayLevel": 0, "originMsgId": "U1",
        "originTopic": "t", "unitMode": "false", "maxReconsumeTimes": 3,
    } | changes  # fmt: skip
    return {name: value for name, value in fields.items() if value is not None}


@pytest.mark.slow
@pytest.mark.parametrize("form", [JSON, BINARY])
def test_a_message_comes_back_until_it_is_a_dead_letter(store: MessageStore, form: int) -> None:
    async def story() -> None:
        async with writing(store) as found:
            client = await found.client()
            phy_offset = await one_message(client)
            first_id = store.message_by_offset(phy_offset).message_id
            for times in range(1, 3):  # levels 3 and 4 + times: the next waits for two hours
                level = 1 if times == 2 else 0
                answer = await client.ask(BACK, back(phy_offset, delayLevel=level), form=form)
                assert (answer.code, answer.fields, answer.form) == (0, {}, form)
                await client.ask(11, pull(RETRY, 0, times - 1, wait_ms=60_000))
                (stored,) = store.get_message(RETRY, 0, times - 1).messages()
                assert (stored.body, stored.tail.reconsume_times) == (b"body", times)
                assert stored.properties["RETRY_TOPIC"] == "t"
                assert stored.properties["ORIGIN_MESSAGE_ID"] == first_id
                phy_offset = stored.phy_offset
            assert (await client.ask(BACK, back(phy_offset, maxReconsumeTimes=2))).code == 0
            (dead,) = store.get_message(DEAD, 0, 0).messages()
            assert (dead.body, dead.tail.reconsume_times) == (b"body", 3)
            assert dead.properties["TAGS"] == "red"
            host = dead.store_host
            assert (host.address, host.port) == ("127.0.0.1", found.port)

    run(story())


def test_a_negative_level_means_the_dead_letters(file_store: MessageStore) -> None:
    async def story() -> None:
        async with writing(file_store) as found:
            client = await found.client()
            phy_offset = await one_message(client)
            assert (await client.ask(BACK, back(phy_offset, delayLevel=-1))).code == 0
            assert file_store.max_offset(DEAD, 0) == 1
            route = (await client.ask(105, {"topic": DEAD})).json["queueDatas"][0]
            assert (route["perm"], route["readQueueNums"]) == (6, 1)

    run(story())


def test_what_cannot_be_sent_back_is_refused(file_store: MessageStore) -> None:
    async def story() -> None:
        async with writing(file_store) as found:
            client = await found.client()
            phy_offset = await one_message(client)
            end = file_store.max_phy_offset()
            wrong: list[tuple[dict[str, object], str]] = [
                ({"offset": None}, "offset is missing"), ({"offset": "x"}, "not a number"),
                ({"offset": -1}, "no message at phy offset -1"),
                ({"offset": phy_offset + 1}, "no message at phy offset"),
                ({"offset": end}, "no message at phy offset"),
                ({"offset": 2**62}, "no message at phy offset"),
                ({"group": None}, "group is missing"), ({"group": ""}, "0 characters"),
                ({"group": "a b"}, "invalid group name"), ({"group": "g" * 125}, "invalid topic"),
                ({"delayLevel": None}, "delayLevel is missing"),
                ({"delayLevel": 2**31}, "not a number"),
                ({"maxReconsumeTimes": "x"}, "not a number"),
            ]  # fmt: skip
            for changes, words in wrong:
                refused = await client.ask(BACK, back(phy_offset, **changes))
                assert (refused.code, words in refused.remark) == (1, True), refused.remark
            assert file_store.max_phy_offset() == end

    run(story())


def test_a_group_decides_how_often_and_in_which_queues(tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    rows = {
        "g": {"groupName": "g", "retryMaxTimes": 0, "retryQueueNums": 3},
        "never": {"groupName": "never", "retryQueueNums": 0},
    }
    (root / "config" / "subscriptionGroup.json").write_text(
        json.dumps({"dataVersion": {"counter": 1}, "subscriptionGroupTable": rows})
    )

    async def story(store: MessageStore) -> None:
        async with writing(store) as found:
            client = await found.client()
            phy_offset = await one_message(client)
            await client.ask(34, {}, heartbeat(1))
            assert (await client.ask(105, {"topic": RETRY})).json["queueDatas"][0][
                "writeQueueNums"
            ] == 3
            fields = back(phy_offset, maxReconsumeTimes=None)
            assert (await client.ask(BACK, fields)).code == 0
            assert store.max_offset(DEAD, 0) == 1  # retryMaxTimes is 0
            end = store.max_phy_offset()
            assert (await client.ask(BACK, fields | {"group": "never"})).code == 0
            assert store.max_phy_offset() == end

    with MessageStore.open(root, DELIVERS) as store:
        run(story(store))


def test_without_delayed_delivery_nothing_is_sent_back(tmp_path: Path) -> None:
    async def story(store: MessageStore) -> None:
        async with writing(store) as found:
            client = await found.client()
            refused = await client.ask(BACK, back(await one_message(client)))
            assert (refused.code, "delayed delivery is disabled" in refused.remark) == (1, True)

    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        run(story(store))


@pytest.mark.parametrize(
    ("times", "limit", "topic"), [(3, 3, RETRY), (4, 3, DEAD), (16, None, RETRY), (17, None, DEAD)]
)
def test_a_consumer_that_sends_back_by_itself(
    file_store: MessageStore, times: int, limit: int | None, topic: str
) -> None:
    async def story() -> None:
        async with writing(file_store) as found:
            client = await found.client()
            fields = sent(
                RETRY, {"RETRY_TOPIC": "t"}, v2=True, queueId=0, reconsumeTimes=times,
                maxReconsumeTimes=limit,
            )  # fmt: skip
            assert (await client.ask(SEND_V2, fields, b"x")).code == 0
            (stored,) = file_store.get_message(topic, 0, 0).messages()
            assert stored.tail.reconsume_times == times

    run(story())


def test_an_orderly_groups_message_is_a_dead_letter_at_once(file_store: MessageStore) -> None:
    async def story() -> None:
        async with writing(file_store) as found:
            client = await found.client()
            queues = [{"topic": "t", "brokerName": "b", "queueId": 0}]
            body = {"consumerGroup": "g", "clientId": "c1", "mqSet": queues}
            await client.ask(41, {}, json.dumps(body).encode())
            fields = sent(RETRY, v2=True, queueId=0, properties=text_of({"DELAY": "5"}))
            assert (await client.ask(SEND_V2, fields, b"x")).code == 0
            assert (file_store.max_offset(DEAD, 0), file_store.max_offset(RETRY, 0)) == (1, 0)
            await client.ask(42, {}, json.dumps(body).encode())
            assert (await client.ask(SEND_V2, sent(RETRY, queueId=0, v2=True), b"x")).code == 0
            assert file_store.max_offset(RETRY, 0) == 1

    run(story())


# ---- groups


def test_a_group_that_joins_has_a_retry_topic_and_its_consumers_are_notified(
    store: MessageStore,
) -> None:
    async def story() -> None:
        async with writing(store) as found:
            one, two = await found.client(), await found.client()
            await one.ask(SEND, sent(), b"x")
            await one.ask(34, {}, heartbeat(1))
            await two.ask(34, {}, heartbeat(1).replace(b'"c1"', b'"c2"'))
            await becomes_notified(one, 2)
            other = heartbeat(2).replace(b'"topic":"t"', b'"topic":"u"')
            await two.ask(34, {}, other.replace(b'"c1"', b'"c2"'))
            await becomes_notified(one, 3)  # it subscribes to another topic
            two.close()
            await becomes_notified(one, 4)
            assert (await one.ask(105, {"topic": RETRY})).json["queueDatas"][0]["perm"] == 6

    async def becomes_notified(client: Client, count: int) -> None:
        while len([each for each in client.early if each.code == 40]) < count:
            client.early.append(await client.next_answer())

    run(story())


def test_offsets_are_in_the_stores_own_table(store: MessageStore) -> None:
    where = {"consumerGroup": "g", "topic": "t", "queueId": 1}

    async def committed(client: Client) -> str:
        return (await client.ask(14, where)).fields["offset"]

    async def story() -> None:
        async with writing(store) as found:
            client = await found.client()
            for _ in range(5):
                await client.ask(SEND, sent(), b"x")
            assert await committed(client) == "0"
            for offset in (4, 2):  # also back, as a broker does
                assert (await client.ask(15, where | {"commitOffset": offset})).code == 0
                assert await committed(client) == str(offset)
            assert (await client.ask(15, where | {"commitOffset": -1})).code == 29
            assert (await client.ask(15, where | {"topic": "no", "commitOffset": 1})).code == 17
            pulled = pull("t", 1, 3) | {"sysFlag": 1 | 4, "commitOffset": 3}
            assert (await client.ask(11, pulled)).code == 0
            assert await committed(client) == "3"
            stats = (await client.ask(208, {"consumerGroup": "g"})).json["offsetTable"]
            assert {row["consumerOffset"] for row in stats.values()} == {0, 3}
            assert (await client.ask(300, {"topic": "t"})).json["groupList"] == ["g"]

    run(story())

    async def again() -> None:
        async with writing(store) as found:
            assert await committed(await found.client()) == "3"

    run(again())


def test_a_group_beyond_the_limit_of_topics_joins_without_its_retry_topic(
    file_store: MessageStore,
) -> None:
    async def story() -> None:
        async with writing(file_store, settings=WriteSettings(max_new_topics=1)) as found:
            client = await found.client()
            phy_offset = await one_message(client)
            assert (await client.ask(34, {}, heartbeat(1))).code == 0
            assert (await client.ask(105, {"topic": RETRY})).code == 0
            refused = await client.ask(BACK, back(phy_offset))
            assert (refused.code, "the limit of 1 new topics" in refused.remark) == (17, True)

    run(story())
