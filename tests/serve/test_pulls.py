"""Pulls over a socket: bytes, statuses and ends are those of the store's own pull; waiting ones."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.puller import TagFilter
from tests.kit.remoting_client import BINARY, JSON, Answer, Client, pull
from tests.kit.remoting_server import serving, with_limits
from tests.kit.tree import tree_digest
from tests.kit.waiting import becomes, run
from tests.serve.conftest import CONFIG, fill

PULL, LITE = 11, 361
SUCCESS, BUSY, NO_TOPIC, NOT_FOUND, RETRY, MOVED, INVALID = 0, 2, 17, 19, 20, 21, 29


async def ask(client: Client, code: int = PULL, form: int = JSON, **fields: Any) -> Answer:
    """Pull from queue 0 of ``t``."""
    given: dict[str, Any] = {"topic": "t", "queue_id": 0, "offset": 0} | fields
    return await client.ask(code, pull(**given), form=form)


def ends(answer: Answer) -> tuple[int, ...]:
    names = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")
    return tuple(int(answer.fields[name]) for name in names)


@pytest.mark.parametrize("form", [JSON, BINARY])
@pytest.mark.parametrize("code", [PULL, LITE])
def test_a_pull_returns_the_bytes_of_the_log(root: Path, form: int, code: int) -> None:
    async def story() -> None:
        async with serving(root) as found:
            answer = await ask(await found.client(), code, form, offset=3, count=5)
        with MessageStore.open(root, read_only=True) as store:
            expected = store.get_message("t", 0, 3, 5)
            assert answer.body == expected.raw
            assert len(expected.queue_offsets) == 5
        assert (answer.code, answer.remark, answer.form) == (SUCCESS, "FOUND", form)
        assert ends(answer) == (8, 0, 30, 0)

    before = tree_digest(root)
    run(story())
    assert tree_digest(root) == before


def test_limits_of_a_pull_are_the_clients(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            whole = await ask(client)
            assert ends(whole)[0] == 30  # not more than there are
            one = len(whole.body) // 30
            part = await ask(client, maxMsgBytes=one * 4 + 10)
            assert ends(part)[0] == 4
            assert whole.body.startswith(part.body)
            assert ends(await ask(client, count=1))[0] == 1
            assert ends(await ask(client, count=-5))[0] == 1
            assert ends(await ask(client, count=2**31 - 1))[0] == 30

    run(story())


@pytest.mark.parametrize(
    ("offset", "topic", "code", "status", "following"),
    [
        (30, "t", NOT_FOUND, "OFFSET_OVERFLOW_ONE", 30),
        (31, "t", MOVED, "OFFSET_OVERFLOW_BADLY", 30),
        (-1, "t", MOVED, "OFFSET_TOO_SMALL", 0),
        (0, "%RETRY%g", NOT_FOUND, "NO_MESSAGE_IN_QUEUE", 0),
        (5, "%RETRY%g", MOVED, "NO_MESSAGE_IN_QUEUE", 0),
    ],
)
def test_statuses_are_those_of_a_broker(
    root: Path, offset: int, topic: str, code: int, status: str, following: int
) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            await client.ask(
                15,
                {
                    "consumerGroup": "g",
                    "topic": "t",
                    "queueId": 0,
                    "commitOffset": 0,
                },
            )  # fmt: skip - a group that is known has a retry topic
            answer = await ask(client, offset=offset, topic=topic)
            assert (answer.code, answer.remark, ends(answer)[0]) == (code, status, following)
            assert answer.body == b""

    run(story())


@pytest.mark.parametrize("tags", ["red", "red || blue", "none", "", "*"])
def test_a_filter_by_tags_takes_what_the_stores_filter_takes(root: Path, tags: str) -> None:
    async def story() -> None:
        async with serving(root) as found:
            answer = await ask(await found.client(), tags=tags)
        with MessageStore.open(root, read_only=True) as store:
            expected = store.get_message("t", 0, 0, 32, TagFilter(tags))
            assert answer.body == (expected.raw if expected.record_count() else b"")
        assert answer.code == (RETRY if tags == "none" else SUCCESS)
        assert ends(answer)[0] == expected.next_begin_offset

    run(story())


def heartbeat(version: int, tags: str = "red", kind: str = "TAG") -> bytes:
    return (
        '{"clientID":"c1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        '"consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING",'
        '"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[112785],"expressionType":'
        f'"{kind}","subString":"{tags}","subVersion":{version},"tagsSet":["{tags}"],"topic":"t"}}],'
        '"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[],"withoutSub":false}'
    ).encode()


def test_a_pull_without_a_subscription_uses_that_of_the_heartbeat(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            bare: dict[str, Any] = {"sysFlag": 0, "subVersion": 5}
            assert (await ask(client, **bare)).code == 24
            assert (await client.ask(34, {}, heartbeat(4))).code == SUCCESS
            assert (await ask(client, **bare)).code == 25
            assert (await client.ask(34, {}, heartbeat(5))).code == SUCCESS
            filtered = await ask(client, **bare)
            assert filtered.body == (await ask(client, tags="red")).body
            assert (await client.ask(34, {}, heartbeat(6, kind="SQL92"))).code == SUCCESS
            refused = await ask(client, sysFlag=0, subVersion=6)
            assert (refused.code, "SQL92" in refused.remark) == (1, True)
            refused = await ask(client, expressionType="SQL92", subscription="a > 5")
            assert (refused.code, "not by SQL92" in refused.remark) == (1, True)

    run(story())


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"topic": "u"}, NO_TOPIC, "topic 'u' does not exist"),
        ({"queue_id": 3}, INVALID, "readQueueNums is 3"),
        ({"queue_id": -1}, INVALID, "queue -1"),
        ({"queueOffset": "x"}, 1, "queueOffset is not a number"),
        ({"maxMsgNums": 1 << 31}, 1, "maxMsgNums is not a number from -2147483648"),
        ({"topic": "t" * 256}, 1, "topic has 256 characters"),
        ({"consumerGroup": ""}, 1, "consumerGroup has 0 characters"),
    ],
)
def test_pulls_that_cannot_be_answered_are_refused(
    root: Path, changes: dict[str, Any], code: int, words: str
) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            answer = await ask(client, **changes)
            assert (answer.code, words in answer.remark) == (code, True), answer.remark
            fields = pull("t", 0, 0)
            del fields["queueId"]
            missing = await client.ask(PULL, fields)
            assert (missing.code, missing.remark) == (
                1,
                "invalid request: the field queueId is missing",
            )
            assert (await ask(client)).code == SUCCESS  # the connection goes on

    run(story())


# ---- waiting


def test_a_pull_at_the_end_waits_as_long_as_the_client_says(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            loop = asyncio.get_running_loop()
            begun = loop.time()
            answer = await ask(client, offset=30, wait_ms=150)
            assert loop.time() - begun >= 0.15
            assert (answer.code, ends(answer)[0], answer.remark) == (
                NOT_FOUND, 30, "OFFSET_OVERFLOW_ONE",
            )  # fmt: skip
            assert len(found.server.held) == 0

    run(story())


def test_waiting_pulls_are_answered_when_a_message_arrives(tmp_path: Path) -> None:
    async def story() -> None:
        with MessageStore.open(tmp_path / "s", CONFIG) as store:
            fill(store, 3)
            async with serving(store) as found:
                client, other = await found.client(), await found.client()
                waiting = [
                    each.send(PULL, pull("t", 0, 1, wait_ms=300_000)) for each in (client, other)
                ]
                elsewhere = other.send(PULL, pull("t", 1, 1, wait_ms=300_000))
                filtered = other.send(PULL, pull("t", 0, 1, wait_ms=300_000, tags="none"))
                await becomes(lambda: len(found.server.held) == 4)
                assert store.put_message(Message("t", b"new", 0)).ok
                one, two = await client.answer(waiting[0]), await other.answer(waiting[1])
                assert one.body == two.body == store.get_message("t", 0, 1).raw
                # A broker answers at once if the filter lets nothing through, with the next offset.
                passed = await other.answer(filtered)
                assert (passed.code, ends(passed)[0]) == (RETRY, 2)
                assert len(found.server.held) == 1
                assert store.put_message(Message("t", b"there", 1)).ok
                assert (await other.answer(elsewhere)).code == SUCCESS

    run(story())


def test_a_client_that_goes_away_leaves_no_waiting_pull(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            for _ in range(50):
                client.send(PULL, pull("t", 0, 30, wait_ms=300_000))
            await becomes(lambda: len(found.server.held) == 50)
            client.close()
            await becomes(lambda: not found.server.held)

    run(story())


@pytest.mark.slow
def test_ten_thousand_waiting_pulls_cost_memory_alone(tmp_path: Path) -> None:
    async def story() -> None:
        with MessageStore.open(tmp_path / "s", CONFIG) as store:
            fill(store, 3)
            async with serving(store) as found:
                clients = [await found.client() for _ in range(4)]
                numbers = [
                    [each.send(PULL, pull("t", 0, 1, wait_ms=300_000)) for _ in range(2500)]
                    for each in clients
                ]
                await becomes(lambda: len(found.server.held) == 10_000)
                assert store.put_message(Message("t", b"new", 0)).ok
                expected = store.get_message("t", 0, 1).raw
                for client, mine in zip(clients, numbers, strict=True):
                    answers = [await client.next_answer() for _ in mine]
                    assert {each.opaque for each in answers} == {*mine}
                    assert {each.body for each in answers} == {expected}
                assert len(found.server.held) == 0

    run(story())


def test_more_waiting_pulls_than_the_limit_are_busy(root: Path) -> None:
    async def story() -> None:
        limits = with_limits(waiting_pulls_per_address=3)
        async with serving(root, limits=limits) as found:
            client = await found.client()
            for _ in range(3):
                client.send(PULL, pull("t", 0, 30, wait_ms=300_000))
            answer = await ask(client, offset=30, wait_ms=300_000)
            assert (answer.code, answer.remark) == (BUSY, "too many pulls are waiting")

    run(story())


def test_a_pull_commits_the_offset_that_it_carries(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            await ask(client, offset=20, sysFlag=5, commitOffset=7)
            where = {"consumerGroup": "g", "topic": "t", "queueId": 0}
            assert (await client.ask(14, where)).fields == {"offset": "7"}

    run(story())
