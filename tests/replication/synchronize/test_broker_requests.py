"""Tables of a broker come whole, or not at all."""

import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from cqstore.replication.errors import BrokerError, WireError
from cqstore.replication.synchronize import broker_requests as tables
from cqstore.replication.synchronize.broker_client import BrokerClient
from cqstore.replication.synchronize.broker_requests import GROUPS, TOPICS, BrokerTable, fetch_table
from tests.kit.waiting import run
from tests.kit.wire_broker import WireBroker, command, topic

T = TypeVar("T")


def requesting(broker: WireBroker, ask: Callable[[BrokerClient], Coroutine[Any, Any, T]]) -> T:
    """Ask ``broker`` with a client of its own."""

    async def story() -> T:
        async with (
            broker,
            BrokerClient("127.0.0.1", broker.port, answer_seconds=30) as client,
        ):
            return await ask(client)

    return run(story())


def topics_of(broker: WireBroker, held: BrokerTable | None = None) -> BrokerTable:
    return requesting(broker, lambda client: fetch_table(client, TOPICS, held))


# ---- pages


@pytest.mark.parametrize("count", [3, 1999, 2000, 2001, 2002, 4000, 4001])
def test_no_name_is_lost_where_a_page_ends(count: int) -> None:
    """RocketMQ's own reader gets 2000 of 2001 and 4000 of 4001, and deletes the last one."""
    broker = WireBroker(topics=count, groups=count)
    assert topics_of(broker).entries == broker.topics
    found = requesting(broker, lambda client: fetch_table(client, GROUPS))
    assert found.entries == broker.groups
    assert len(found.entries) == count


def test_what_lies_beside_comes_from_all_pages() -> None:
    broker = WireBroker(topics=10, groups=10, page=3)
    broker.mappings = {"t00000": {"scope": "s"}, "t00006": {"scope": "t"}}
    broker.forbidden = {"g00000": {"t": 1}, "g00007": {"t": 2}}
    assert topics_of(broker).beside == broker.mappings
    found = requesting(broker, lambda client: fetch_table(client, GROUPS))
    assert found.beside == broker.forbidden


def test_a_broker_that_knows_no_pages_sends_all_at_once() -> None:
    broker = WireBroker(topics=4001)
    broker.pages = False
    assert topics_of(broker).entries == broker.topics
    assert len(broker.requested) == 1


def test_a_table_that_has_not_changed_is_not_sent_again() -> None:
    broker = WireBroker(topics=5000)
    held = topics_of(broker)
    broker.requested.clear()
    assert topics_of(broker, held) is held
    assert [fields["topicSeq"] for _, fields in broker.requested] == ["5000"]
    broker.topics["new"] = topic("new")  # it may come before its version does
    assert topics_of(broker, held).entries == broker.topics
    del broker.topics["new"], broker.topics["t00000"]
    broker.versions[21] += 1
    assert topics_of(broker, held).entries == broker.topics


def test_a_table_that_changes_between_two_pages_is_read_again() -> None:
    broker = WireBroker(topics=10, page=4)
    changes = iter(range(3))

    def change(code: int, fields: dict[str, str]) -> None:
        if fields["topicSeq"] != "0" and (number := next(changes, None)) is not None:
            broker.topics[f"a{number}"] = topic(f"a{number}")
            broker.topics.pop(f"t0000{number}")
            broker.versions[code] += 1

    broker.before = change
    assert topics_of(broker).entries == broker.topics
    assert {"a0", "a1", "a2"} < broker.topics.keys()


def test_a_name_that_goes_before_its_version_does_hides_no_other_one() -> None:
    """The pages behind it begin one later then, all of one version; as many as there were."""
    broker = WireBroker(topics=10, page=4)
    gone = list[str]()

    def change(code: int, fields: dict[str, str]) -> None:
        if fields["topicSeq"] == "4" and not gone:
            gone.append(sorted(broker.topics)[0])
            del broker.topics[gone[0]]
            broker.topics["z"] = topic("z")
        elif fields["topicSeq"] == "10":
            broker.versions[code] = 2

    broker.before = change
    assert topics_of(broker).entries == broker.topics
    assert (len(broker.topics), len(gone)) == (10, 1)


def test_a_table_that_changes_all_the_time_is_given_up() -> None:
    broker = WireBroker(topics=10, page=4)

    def change(code: int, _fields: dict[str, str]) -> None:
        broker.versions[code] += 1

    broker.before = change
    with pytest.raises(BrokerError, match="the topics changed while they were being read, 5 times"):
        topics_of(broker)
    assert len(broker.requested) == 10


CUT = "java.lang.ArrayIndexOutOfBoundsException: Index 59 out of bounds for length 59"
"""What RocketMQ 5.5.0 answered when a topic went between its count and its copy of the names."""


@pytest.mark.parametrize("at", ["0", "4", "8", "10"])
def test_a_page_that_a_broker_failed_to_cut_is_asked_for_again(at: str) -> None:
    broker = WireBroker(topics=10, page=4)
    failures = iter([1])

    def fail(number: int, fields: dict[str, str]) -> bytes | None:
        fails = fields["topicSeq"] == at and next(failures, None)
        return WireBroker.say(number, code=1, remark=CUT) if fails else None

    broker.instead[21] = fail
    assert topics_of(broker).entries == broker.topics
    assert next(failures, None) is None


def test_a_table_that_is_held_is_read_again_where_the_question_for_changes_fails() -> None:
    broker = WireBroker(topics=10)
    held = topics_of(broker)
    del broker.topics["t00000"]
    broker.instead[21] = lambda number, fields: (
        WireBroker.say(number, code=1, remark=CUT) if fields["topicSeq"] == "10" else None
    )
    assert topics_of(broker, held).entries == broker.topics


@pytest.mark.parametrize(("code", "times"), [(1, 5), (16, 1)])
def test_a_refusal_that_stays_is_told(code: int, times: int) -> None:
    broker = WireBroker()
    broker.instead[21] = lambda number, _fields: WireBroker.say(number, code=code, remark=CUT)
    with pytest.raises(BrokerError, match=rf"topics \(code 21\) with response code {code}: java"):
        topics_of(broker)
    assert len(broker.requested) == times


def test_what_changes_behind_a_page_that_failed_is_no_refusal() -> None:
    broker = WireBroker(topics=10, page=4)
    failures = iter([1])

    def change(code: int, _fields: dict[str, str]) -> None:
        broker.versions[code] += 1

    broker.before = change
    broker.instead[21] = lambda number, _fields: (
        WireBroker.say(number, code=1, remark=CUT) if next(failures, None) else None
    )
    with pytest.raises(BrokerError, match="changed while they were being read"):
        topics_of(broker)


def page(number: int, names: list[str], total: object, **more: object) -> bytes:
    body = {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 7},
        "topicConfigTable": {name: topic(name) for name in names},
    } | more
    return WireBroker.say(number, json.dumps(body).encode(), fields={"totalTopicNum": str(total)})


@pytest.mark.parametrize(
    ("names", "total", "words"),
    [
        (["a"], 2, "the topics are incomplete: the broker has 2 but sent 1"),
        ([], 1, "the broker has 1 but sent 0"),
        (["a", "b"], 1, "changed while they were being read"),
        (["a"], 10_000_001, "the broker has 10000001, more than the limit of 10000000"),
        (["a"], -1, "invalid number '-1'"),
        (["a"], "9" * 5000, "invalid number"),
    ],
)
def test_a_partial_answer_is_none(names: list[str], total: object, words: str) -> None:
    broker = WireBroker()
    broker.instead[21] = lambda number, _fields: page(number, names, total)
    with pytest.raises(BrokerError, match=words):
        topics_of(broker)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'{"topicConfigTable":{}}', b'{"topicConfigTable":null}',
        b'{"topicConfigTable":{"a":1},"dataVersion":{"counter":1,"timestamp":1}}',
        b'{"topicConfigTable":{},"dataVersion":{"counter":"1","timestamp":1}}',
        b'{"topicConfigTable":{},"dataVersion":{"counter":1e5,"timestamp":1}}',
        b'{"topicConfigTable":{},"dataVersion":{"counter":NaN,"timestamp":1}}',
        b'{"topicConfigTable":{},"dataVersion":{"counter":1,"timestamp":9223372036854775808}}',
        b'{"topicConfigTable":{"\xff":{}}}', b'{"a":' * 100_000, b"1" * 5000,
    ],
)  # fmt: skip
def test_a_malformed_answer_is_refused(body: bytes) -> None:
    broker = WireBroker()
    broker.instead[21] = lambda number, _fields: WireBroker.say(number, body)
    with pytest.raises(BrokerError, match="cannot read the broker's response for the topics"):
        topics_of(broker)


# ---- other questions


def test_offsets_are_read_with_and_without_quotes() -> None:
    broker = WireBroker()
    broker.offsets = r'{"t@g":{0:5,"1":-1}, "a\"{0:1":{}}'
    broker.delays = "{3:7, 4 :8}"
    assert requesting(broker, tables.consumer_offsets) == {
        "offsetTable": {"t@g": {"0": 5, "1": -1}, 'a"{0:1': {}},
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 7},
    }
    assert requesting(broker, tables.delay_offsets)["offsetTable"] == {"3": 7, "4": 8}


@pytest.mark.parametrize(
    "offsets",
    ['{"t@g":5}', '{"t@g":{"x":1}}', '{"t@g":{"0":"1"}}', '{"t@g":{"0":1.5}}', "[]", "null",
     '{"t@g":{"0":9223372036854775808}}', '{"t@g":{"-1":1}}', '{"t@g":{"0":true}}', '"'],
)  # fmt: skip
def test_odd_offsets_are_refused(offsets: str) -> None:
    broker = WireBroker()
    broker.offsets = broker.delays = offsets
    for ask in (tables.consumer_offsets, tables.delay_offsets):
        with pytest.raises(BrokerError, match="cannot read the broker's response for the"):
            requesting(broker, ask)


def test_the_end_of_the_masters_log_is_asked_for_in_the_way_that_it_knows() -> None:
    broker = WireBroker()
    broker.log_end, broker.slaves = 77, ["10.0.0.1:50000", "[0:0:0:0:0:0:0:1]:50001", "odd"]
    found = requesting(broker, tables.log_end)
    assert (found.max_phy_offset, found.slave_ports) == (77, frozenset({50000, 50001}))
    broker.instead[907] = lambda number, _fields: WireBroker.say(number, code=3)
    found = requesting(broker, tables.log_end)
    assert (found.max_phy_offset, found.slave_ports) == (77, None)


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        (
            907,
            b'{"master":false,"masterCommitLogMaxOffset":0,"haConnectionInfo":[]}',
            "is not a master",
        ),
        (
            907,
            b'{"master":true,"masterCommitLogMaxOffset":-1,"haConnectionInfo":[]}',
            "the end of the log or",
        ),
        (907, b'{"master":true,"masterCommitLogMaxOffset":1}', "the list of slaves is missing"),
        (28, b'{"table":{}}', "invalid number"),
        (28, b'{"table":[]}', "invalid number"),
    ],
)
def test_an_end_that_is_none_is_refused(code: int, body: bytes, words: str) -> None:
    broker = WireBroker()
    if code == 28:
        broker.instead[907] = lambda number, _fields: WireBroker.say(number, code=3)
    broker.instead[code] = lambda number, _fields: WireBroker.say(number, body)
    with pytest.raises(BrokerError, match=words):
        requesting(broker, tables.log_end)


def test_a_refusal_is_told_with_its_reason() -> None:
    broker = WireBroker()
    broker.instead[43] = lambda number, _fields: WireBroker.say(number, code=16, remark="no right")
    with pytest.raises(BrokerError, match=r"offsets \(code 43\) with response code 16: no right"):
        requesting(broker, tables.consumer_offsets)


# ---- the connection


def test_an_answer_to_another_question_is_none() -> None:
    broker = WireBroker()
    broker.instead[43] = lambda number, fields: (
        WireBroker.say(number + 1) + broker.plain(43, number, fields)
    )
    assert requesting(broker, tables.consumer_offsets)["offsetTable"] == {}


def test_after_a_fault_the_next_question_has_a_new_connection() -> None:
    broker = WireBroker()
    broker.instead[45] = lambda number, _fields: command(b"{") + broker.plain(45, number, {})
    broker.instead[402] = lambda number, _fields: broker.plain(402, number, {})[:20]
    broker.instead[61] = lambda _number, _fields: b""  # and cut

    async def ask(client: BrokerClient) -> object:
        with pytest.raises(WireError):
            await tables.delay_offsets(client)
        client._answer_seconds = 0.05  # of what is not answered alone
        with pytest.raises(TimeoutError, match="timed out"):
            await tables.request_modes(client)
        client._answer_seconds = 30
        with pytest.raises(ConnectionError, match="the broker closed the connection"):
            await tables.timer_metrics(client)
        return (await tables.consumer_offsets(client))["offsetTable"]

    assert requesting(broker, ask) == {}
