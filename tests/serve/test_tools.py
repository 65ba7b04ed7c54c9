"""Requests of mqadmin and the dashboard, answered from the store and its tables."""

from pathlib import Path

import pytest

from cqstore.store.record.message_id import decode_message_id
from cqstore.store.service.message_store import MessageStore
from tests.kit.remoting_client import Answer, Client
from tests.kit.remoting_server import serving
from tests.kit.waiting import run
from tests.serve.test_pulls import heartbeat

KEY, ID, UNITS = 12, 33, 321
STATS, LAG, TOPIC, CLUSTER, TOPICS, RUNTIME, WHO, ONLINE = 202, 208, 351, 106, 206, 28, 300, 203
ALL_TOPICS, ALL_GROUPS, CONFIG, DATA, GROUP, PRODUCERS = 21, 201, 26, 315, 352, 204
FOREVER = (1 << 63) - 1


async def by_key(client: Client, key: str, count: int = 32, **more: object) -> Answer:
    fields: dict[str, object] = {
        "topic": "t", "key": key, "maxNum": count, "beginTimestamp": 0, "endTimestamp": FOREVER,
    }  # fmt: skip
    return await client.ask(KEY, fields | more)


def test_messages_are_found_by_key(root: Path) -> None:
    async def story() -> None:
        with MessageStore.open(root, read_only=True) as store:
            one, newest = store.query_message("t", "k7"), store.query_message("t", "all", 3)
            unique = store.query_message("t", "U80")
        async with serving(root) as found:
            client = await found.client()
            assert (await by_key(client, "k7")).body == bytes(one[0].record)
            several = await by_key(client, "all", 3)
            assert several.body == b"".join(bytes(each.record) for each in newest)
            assert several.fields.keys() == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
            by_unique = await by_key(client, "U80", 0, _UNIQUE_KEY_QUERY="true")
            assert by_unique.body == bytes(unique[0].record)
            none = await by_key(client, "nothing")
            assert (none.code, none.remark) == (22, "no message of this topic has the key")
            late = await by_key(client, "k7", beginTimestamp=one[0].store_timestamp + 1)
            assert late.code == 22

    run(story())


def test_messages_are_found_by_id(root: Path) -> None:
    async def story() -> None:
        with MessageStore.open(root, read_only=True) as store:
            message = store.get_message("t", 2, 4).messages()[0]
            record, (_, phy) = bytes(message.record), decode_message_id(message.message_id)
        async with serving(root) as found:
            client = await found.client()
            assert (await client.ask(ID, {"offset": phy})).body == record
            for offset in (phy + 1, -1, 1 << 40, FOREVER):
                answer = await client.ask(ID, {"offset": offset})
                assert (answer.code, answer.body) == (1, b"")
                assert f"no message at phy offset {offset}" in answer.remark

    run(story())


def test_units_are_those_of_the_queue(root: Path) -> None:
    async def story() -> None:
        with MessageStore.open(root, read_only=True) as store:
            messages = store.get_message("t", 0, 5, 3).messages()
            expected = [(each.phy_offset, each.size) for each in messages]
        async with serving(root) as found:
            client = await found.client()
            fields: dict[str, object] = {"topic": "t", "queueId": 0, "index": 5, "count": 3}
            body = (await client.ask(UNITS, fields)).json
            rows = [(each["physicOffset"], each["physicSize"]) for each in body["queueData"]]
            assert rows == expected
            assert (body["minQueueIndex"], body["maxQueueIndex"]) == (0, 30)
            offline = (await client.ask(UNITS, fields | {"consumerGroup": "g"})).json
            assert offline["filterData"] == "g@t is not online!"
            beyond = (await client.ask(UNITS, fields | {"index": 31})).json
            assert beyond["queueData"] == []
            assert (await client.ask(UNITS, fields | {"count": 1 << 20})).code == 29
            assert (await client.ask(UNITS, fields | {"topic": "u"})).code == 17

    run(story())


def test_topics_and_their_ends(root: Path) -> None:
    async def story() -> None:
        with MessageStore.open(root, read_only=True) as store:
            last = [
                store.get_message("t", each, 29).messages()[0].store_timestamp for each in range(3)
            ]
        async with serving(root) as found:
            client = await found.client()
            assert (await client.ask(TOPICS)).json == {"topicList": ["t"]}
            stats = await client.ask(STATS, {"topic": "t"})
            assert b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{' in stats.body
            assert list(stats.json["offsetTable"].values()) == [
                {"lastUpdateTimestamp": each, "maxOffset": 30, "minOffset": 0} for each in last
            ]
            row = (await client.ask(TOPIC, {"topic": "t"})).json
            assert (row["topicName"], row["readQueueNums"], row["perm"]) == ("t", 3, 6)
            for code in (STATS, TOPIC):
                assert (await client.ask(code, {"topic": "u"})).code == 17
            whole = await client.ask(ALL_TOPICS)
            assert whole.fields == {"totalTopicNum": "1"}
            assert [*whole.json["topicConfigTable"]] == ["t"]
            assert (await client.ask(ALL_TOPICS, {"topicSeq": 1, "maxTopicNum": 9})).json[
                "topicConfigTable"
            ] == {}

    run(story())


def test_groups_and_their_lag(logged_root: Path) -> None:
    async def story() -> None:
        async with serving(logged_root) as found:
            client = await found.client()
            assert (await client.ask(WHO, {"topic": "orders"})).json == {"groupList": ["billing"]}
            assert (await client.ask(WHO, {"topic": "nobody"})).json == {"groupList": []}
            for more in ({}, {"topic": "orders"}, {"topicList": "orders"}):
                lag = (await client.ask(LAG, {"consumerGroup": "billing"} | more)).json
                rows = list(lag["offsetTable"].values())
                assert [(each["brokerOffset"], each["consumerOffset"]) for each in rows] == [
                    (5, 2)
                ] * 2
                assert all(each["lastTimestamp"] > 0 for each in rows)
            assert (await client.ask(LAG, {"consumerGroup": "none"})).json["offsetTable"] == {}
            assert (await client.ask(ALL_TOPICS)).json["topicConfigTable"]["orders"][
                "readQueueNums"
            ] == 2
            assert "subscriptionGroupTable" in (await client.ask(ALL_GROUPS)).json

    run(story())


def test_rows_of_groups_and_producers(logged_root: Path) -> None:
    async def story() -> None:
        async with serving(logged_root) as found:
            client = await found.client()
            row = (await client.ask(GROUP, {"group": "billing"})).json
            assert row["groupName"] == "billing"
            unknown = await client.ask(GROUP, {"group": "none"})
            assert (unknown.code, unknown.remark) == (26, "No group in this broker")
            await client.ask(34, {}, heartbeat(1))
            assert (await client.ask(GROUP, {"group": "g"})).json == {"groupName": "g"}
            none = await client.ask(PRODUCERS, {"producerGroup": "p"})
            assert (none.code, none.remark) == (1, "the producer group[p] not exist")

    run(story())


@pytest.mark.parametrize("code", [309, 3001, 3008, 222])
def test_what_changes_a_broker_is_refused_by_name(root: Path, code: int) -> None:
    async def story() -> None:
        async with serving(root) as found:
            refused = await (await found.client()).ask(code)
            assert (refused.code, f"({code}) is refused" in refused.remark) == (16, True)

    run(story())


def test_connected_consumers_are_listed(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            offline = await client.ask(ONLINE, {"consumerGroup": "g"})
            assert (offline.code, offline.remark) == (206, "the consumer group[g] not online")
            await client.ask(34, {}, heartbeat(1))
            body = (await client.ask(ONLINE, {"consumerGroup": "g"})).json
            (connection,) = body["connectionSet"]
            assert (connection["clientId"], connection["language"], connection["version"]) == (
                "c1", "JAVA", 477,
            )  # fmt: skip
            assert body["subscriptionTable"]["t"]["subString"] == "red"
            assert body["consumeType"] == "CONSUME_PASSIVELY"
            assert (await client.ask(WHO, {"topic": "t"})).json == {"groupList": ["g"]}

    run(story())


def test_the_broker_is_this_server(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            body = (await client.ask(CLUSTER)).json
            assert body["clusterAddrTable"] == {"c": ["b"]}
            assert body["brokerAddrTable"]["b"]["brokerAddrs"] == {"0": f"127.0.0.1:{found.port}"}
            table = (await client.ask(RUNTIME)).json["table"]
            assert table["brokerActive"] == "true"
            assert table["brokerVersionDesc"].startswith("cqstore-")
            assert int(table["commitLogMaxOffset"]) > 0
            assert {type(each) for each in table.values()} == {str}
            settings = (await client.ask(CONFIG)).body.decode().splitlines()
            assert f"listenPort={found.port}" in settings
            assert f"storePathRootDir={root}" in settings
            refused = await client.ask(DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "t"})
            assert (refused.code, refused.remark) == (1, "The stats <TOPIC_PUT_NUMS> <t> not exist")

    run(story())


@pytest.mark.parametrize("code", [KEY, ID, UNITS, STATS, LAG, TOPIC, WHO, ONLINE, GROUP, 307])
def test_missing_fields_are_named(root: Path, code: int) -> None:
    async def story() -> None:
        async with serving(root) as found:
            answer = await (await found.client()).ask(code)
            assert (answer.code, "is missing" in answer.remark) == (1, True)

    run(story())
