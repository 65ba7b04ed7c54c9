"""Routes, heartbeats, offsets and locks of consumers; refusals of everything that writes."""

import json
from pathlib import Path

import pytest

from cqstore.serve.codes import WRITES
from cqstore.serve.group_offsets import GroupOffsets
from cqstore.store.errors import CorruptionError
from cqstore.store.service.message_store import MessageStore
from tests.kit.remoting_client import BINARY, ONEWAY, Client, pull
from tests.kit.remoting_server import serving
from tests.kit.tree import tree_digest
from tests.kit.waiting import becomes, run
from tests.serve.test_pulls import heartbeat

ROUTE, HEART_BEAT, UNREGISTER, LIST, LOCK, UNLOCK, CHECK = 105, 34, 35, 38, 41, 42, 46
OFFSET, COMMIT, BY_TIME, MAX, MIN, EARLIEST = 14, 15, 29, 30, 31, 32


def where(
    queue_id: int = 0, topic: str = "t", group: str = "g", **more: object
) -> dict[str, object]:
    return {"consumerGroup": group, "topic": topic, "queueId": queue_id} | more


def test_a_route_names_this_server_and_readable_queues(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            old = await client.ask(ROUTE, {"topic": "t"})
            new = await client.ask(ROUTE, {"topic": "t", "acceptStandardJsonOnly": "true"})
            assert b'"brokerAddrs":{0:"127.0.0.1:' in old.body
            expected = {
                "brokerDatas": [{
                    "brokerAddrs": {"0": f"127.0.0.1:{found.port}"}, "brokerName": "b",
                    "cluster": "c", "enableActingMaster": False,
                }],
                "filterServerTable": {},
                "queueDatas": [{
                    "brokerName": "b", "perm": 4, "readQueueNums": 3, "topicSysFlag": 0,
                    "writeQueueNums": 3,
                }],
            }  # fmt: skip
            assert json.loads(new.body) == old.json == expected
            missing = await client.ask(ROUTE, {"topic": "u"})
            assert (missing.code, missing.remark) == (17, "topic 'u' does not exist in this store")
            assert (await client.ask(ROUTE, {"topic": "%RETRY%g"})).code == 17
            await client.ask(HEART_BEAT, {}, heartbeat(1))
            retry = await client.ask(ROUTE, {"topic": "%RETRY%g"})
            assert retry.json["queueDatas"][0]["readQueueNums"] == 1

    run(story())


def test_an_address_can_be_advertised(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            found.broker.advertised = "broker.example:10911"
            body = (await (await found.client()).ask(ROUTE, {"topic": "t"})).json
            assert body["brokerDatas"][0]["brokerAddrs"] == {"0": "broker.example:10911"}

    run(story())


def test_consumers_of_a_group_know_each_other(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            one, two = await found.client(), await found.client()
            alone = await one.ask(LIST, {"consumerGroup": "g"})
            assert (alone.code, alone.remark) == (1, "no consumer for this group, g")
            await one.ask(HEART_BEAT, {}, heartbeat(1))
            second = heartbeat(1).replace(b'"c1"', b'"c2"')
            await two.ask(HEART_BEAT, {}, second, BINARY)
            assert (await one.ask(LIST, {"consumerGroup": "g"})).json == {
                "consumerIdList": ["c1", "c2"]
            }
            told = [each for each in one.early if each.code == 40]
            assert [each.fields for each in told] == [{"consumerGroup": "g"}] * 2
            assert {each.flag for each in told} == {ONEWAY}
            await two.ask(HEART_BEAT, {}, second)  # again: nothing has changed
            await two.ask(UNREGISTER, {"clientID": "c2", "consumerGroup": "g"})
            assert (await one.ask(LIST, {"consumerGroup": "g"})).json == {"consumerIdList": ["c1"]}
            one.close()
            await becomes(lambda: found.broker.groups.get("g") is None)

    run(story())


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"{}", b'{"clientID":5}', b'{"clientID":"' + b"c" * 256 + b'"}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":null}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{}]}]}',
        b'{"a":' + b"[" * 50_000,
    ],
)  # fmt: skip
def test_a_body_that_is_no_heartbeat_is_refused(root: Path, body: bytes) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            answer = await client.ask(HEART_BEAT, {}, body)
            assert (answer.code, "heartbeat" in answer.remark) == (1, True)
            assert (await client.ask(HEART_BEAT, {}, heartbeat(1))).code == 0

    run(story())


def test_orderly_consumers_lock_queues(root: Path) -> None:
    queues = [{"topic": "t", "brokerName": "b", "queueId": queue_id} for queue_id in range(3)]

    async def lock(client: Client, code: int, name: str, mine: object) -> object:
        body = {"consumerGroup": "g", "clientId": name, "mqSet": mine}
        answer = await client.ask(code, {}, json.dumps(body).encode())
        assert answer.code == 0
        return answer.json["lockOKMQSet"] if code == LOCK else None

    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            assert await lock(client, LOCK, "c1", queues[:2]) == queues[:2]
            assert await lock(client, LOCK, "c2", queues) == queues[2:]
            await lock(client, UNLOCK, "c2", queues)
            await lock(client, UNLOCK, "c1", queues[:1])
            assert await lock(client, LOCK, "c2", queues) == [queues[0], queues[2]]
            refused = await client.ask(LOCK, {}, b'{"mqSet":5}')
            assert refused.code == 1

    run(story())


def test_other_filters_than_tags_are_refused_when_a_client_asks(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            body = '{"clientId":"c","group":"g","subscriptionData":{"expressionType":"%s"}}'
            assert (await client.ask(CHECK, {}, (body % "TAG").encode())).code == 0
            refused = await client.ask(CHECK, {}, (body % "SQL92").encode())
            assert (refused.code, "not by SQL92" in refused.remark) == (1, True)

    run(story())


# ---- offsets


def test_ends_and_times_are_those_of_the_store(root: Path) -> None:
    async def story() -> None:
        with MessageStore.open(root, read_only=True) as store:
            times = [each.store_timestamp for each in store.get_message("t", 1, 0).messages()]
            searched = [
                (times[5], "lower", store.offset_by_time("t", 1, times[5])),
                (times[-1] + 9, "", 30), (0, "UPPER", 0),
            ]  # fmt: skip
        async with serving(root) as found:
            client = await found.client()
            assert (await client.ask(MAX, where(1))).fields == {"offset": "30"}
            assert (await client.ask(MIN, where(1))).fields == {"offset": "0"}
            assert (await client.ask(EARLIEST, where(1))).fields == {"timestamp": str(times[0])}
            for timestamp, kind, offset in searched:
                fields = where(1, timestamp=timestamp, boundaryType=kind)
                assert (await client.ask(BY_TIME, fields)).fields == {"offset": str(offset)}
            for code in (MAX, MIN, EARLIEST, BY_TIME):
                assert (await client.ask(code, where(0, "u", timestamp=0))).code == 17
                assert (await client.ask(code, where(-1, timestamp=0))).code == 29

    run(story())


def test_offsets_are_committed_in_memory(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            first = await client.ask(OFFSET, where())
            assert (first.code, first.fields) == (0, {"offset": "0"})  # message 0 is there
            none = await client.ask(OFFSET, where(setZeroIfNotFound="false"))
            assert none.code == 22
            assert (await client.ask(OFFSET, where(7))).code == 22
            assert (await client.ask(COMMIT, where(commitOffset=12))).code == 0
            assert (await client.ask(OFFSET, where())).fields == {"offset": "12"}
            assert (await client.ask(COMMIT, where(commitOffset=4))).code == 0
            assert (await client.ask(OFFSET, where())).fields == {"offset": "4"}
            assert (await client.ask(COMMIT, where(topic="u", commitOffset=4))).code == 17
            assert (await client.ask(COMMIT, where(commitOffset=-1))).code == 29

    before = tree_digest(root)
    run(story())
    assert tree_digest(root) == before


def test_offsets_begin_with_those_of_the_store(logged_root: Path) -> None:
    async def story() -> None:
        async with serving(logged_root) as found:
            client = await found.client()
            place = where(1, "orders", "billing")
            assert (await client.ask(OFFSET, place)).fields == {"offset": "2"}
            await client.ask(COMMIT, place | {"commitOffset": 4})
            assert (await client.ask(OFFSET, place)).fields == {"offset": "4"}
            assert (await client.ask(OFFSET, where(0, "orders", "billing"))).fields == {
                "offset": "2"
            }

    before = tree_digest(logged_root)
    run(story())
    assert tree_digest(logged_root) == before


def test_offsets_survive_in_a_file(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"

    async def story() -> None:
        for number in range(2):
            async with serving(root, offsets=file) as found:
                client = await found.client()
                assert (await client.ask(OFFSET, where(1))).fields == {"offset": str(9 * number)}
                await client.ask(COMMIT, where(1, commitOffset=9))

    before = tree_digest(root)
    run(story())
    assert tree_digest(root) == before
    assert json.loads(file.read_text()) == {"offsetTable": {"t@g": {"1": 9}}}


def test_a_file_for_offsets_is_checked(tmp_path: Path) -> None:
    for text in ("", "{}", '{"offsetTable":{"t":{}}}', '{"offsetTable":{"t@g":{"x":1}}}',
                 '{"offsetTable":{"t@g":{"1":-1}}}', '{"offsetTable":{"t@g":5}}'):  # fmt: skip
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(CorruptionError):
            GroupOffsets(tmp_path / "x.json")
    (tmp_path / "x.json").write_text('{"offsetTable":{"t@x@g":{0:1,1:2}}}')
    assert GroupOffsets(tmp_path / "x.json").committed("t@x", "g", 1) == 2


# ---- what is refused, and what is not answered


def test_writes_are_refused_with_a_sentence_and_unknown_codes_by_number(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            for code, name in WRITES.items():
                answer = await client.ask(code, {"topic": "t"}, b"x" * 100)
                assert (answer.code, answer.remark) == (
                    16,
                    f"{name} ({code}) is refused: this server is read-only, the store is not"
                    " changed",
                )
            for code in (0, -1, 999, 13, 43, 303):
                answer = await client.ask(code)
                assert (answer.code, answer.remark) == (
                    3, f"request code {code}: this server does not support it",
                )  # fmt: skip
            assert (await client.ask(200_050)).remark == "request code 200050: POP is not supported"
            large = await client.ask(310, {}, b"x" * (4 << 20))  # a message of four MiB
            assert large.code == 16
            assert (await client.ask(11, pull("t", 0, 0))).code == 0

    before = tree_digest(root)
    run(story())
    assert tree_digest(root) == before


def test_oneway_requests_have_no_answer(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            client.send(COMMIT, where(commitOffset=3), flag=ONEWAY)
            client.send(10, {}, b"x", flag=ONEWAY)
            client.send(206, {}, flag=ONEWAY)
            answer = await client.ask(OFFSET, where())
            assert answer.fields == {"offset": "3"}
            assert client.early == []
            await becomes(lambda: sum(each.total for each in found.server.counts.snapshot()) == 4)
            counts = {(each.request, each.response): each.total
                      for each in found.server.counts.snapshot()}  # fmt: skip
            assert counts == {
                ("UPDATE_CONSUMER_OFFSET", -1): 1, ("SEND_MESSAGE", -1): 1,
                ("GET_ALL_TOPIC_LIST_FROM_NAMESERVER", -1): 1, ("QUERY_CONSUMER_OFFSET", 0): 1,
            }  # fmt: skip

    run(story())


def test_responses_of_a_client_are_passed_over(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            client.send(0, {}, flag=1)
            assert (await client.ask(MAX, where())).code == 0
            assert client.early == []

    run(story())
