"""Statistics, users and ACLs: ``cqstore serve`` answers tools field by field as a broker does."""

import asyncio
import hmac
import re
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.brokers import Brokers
from tests.interop.consumers import NEWEST, Consumers, RunningConsumers, served
from tests.interop.test_writable import writable
from tests.kit.remoting_client import Answer, Client, pull
from tests.kit.sends import BATCH, SEND, batch_of, sent, text_of
from tests.kit.waiting import run

pytestmark = [pytest.mark.interop, pytest.mark.long]
TOPIC, GROUP = "orders", "billing"
FIGURES = [
    ("TOPIC_PUT_NUMS", TOPIC), ("TOPIC_PUT_SIZE", TOPIC), ("BROKER_PUT_NUMS", "c"),
    ("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX"), ("TOPIC_PUT_SIZE", "SCHEDULE_TOPIC_XXXX"),
    ("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}"), ("GROUP_GET_SIZE", f"{TOPIC}@{GROUP}"),
    ("BROKER_GET_NUMS", "c"), ("SNDBCK_PUT_NUMS", f"{TOPIC}@{GROUP}"),
]  # fmt: skip
WITH_COPY = {("TOPIC_PUT_SIZE", "SCHEDULE_TOPIC_XXXX")}
"""A broker sets ``WAIT`` to false in the copy and does not wait for the disk; cqstore waits."""
STATS, GET_USER, LIST_USER, GET_ACL, LIST_ACL, CREATE_USER = 315, 3004, 3005, 3009, 3010, 3001
PROVIDER = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
USERS = {"ann": "12345678", "bob": "87654321"}
Ask = Callable[..., Coroutine[Any, Any, Answer]]


@pytest.fixture(scope="module")
def consumers() -> Iterator[RunningConsumers]:
    with Consumers.build(NEWEST).running() as found:
        yield found


async def use(client: Client) -> None:
    """Send, pull and send back what every figure counts."""
    for number in range(5):
        assert (await client.ask(SEND, sent(TOPIC, {"KEYS": f"k{number}"}), b"x" * 50)).code == 0
    batch = batch_of(b"a", b"bc", properties=text_of({"TAGS": "x"}))
    assert (await client.ask(BATCH, sent(TOPIC, v2=True, batch="true"), batch)).code == 0
    assert (await client.ask(SEND, sent(TOPIC, {"DELAY": "1"}), b"later")).code == 0
    for offset in (0, 3):
        assert (await client.ask(11, pull(TOPIC, 1, offset, group=GROUP))).code == 0
    assert (await client.ask(11, pull(TOPIC, 1, 7, group=GROUP))).code != 0
    back = {"offset": 0, "group": GROUP, "delayLevel": 1, "originTopic": TOPIC, "originMsgId": "",
            "unitMode": "false", "maxReconsumeTimes": 16}  # fmt: skip
    assert (await client.ask(36, back)).code == 0


async def figures(port: int) -> dict[tuple[str, str], Any]:
    """Return all figures, once the minute of each has a sample."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    await use(client)
    found: dict[tuple[str, str], Any] = {}
    while len(found) < len(FIGURES):
        for name, key in FIGURES:
            answer = await client.ask(STATS, {"statsName": name, "statsKey": key})
            assert answer.code == 0, (name, key, answer.remark)
            if answer.json["statsMinute"]["sum"]:
                found[name, key] = answer.json
        await asyncio.sleep(0.1)  # the first sample comes within ten seconds
    missing = await client.ask(STATS, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "none"})
    found["none", ""] = (missing.code, missing.remark)
    client.close()
    await asyncio.sleep(0)
    return found


def test_statistics_are_those_of_a_broker(
    tmp_path: Path, brokers: Brokers, consumers: RunningConsumers
) -> None:
    settings = {"mappedFileSizeCommitLog": 4 << 20, "messageDelayLevel": "1h"}

    with brokers.running(tmp_path / "broker", **settings) as broker:
        expected = run(figures(broker.port))
    with writable(tmp_path, "file", "messageDelayLevel=1h\n") as port:
        found = run(figures(port))
        printed = consumers.admin("statsAll", "-n", f"127.0.0.1:{port}", "-t", TOPIC)
    assert re.search(rf"^{TOPIC} .* 7 +\S+ *$", printed, re.MULTILINE), printed  # InMsg24Hour
    assert found.pop(("none", "")) == expected.pop(("none", ""))
    for place, rows in expected.items():
        assert list(found[place]) == list(rows)
        for name, row in rows.items():
            ours = found[place][name]
            assert list(ours) == list(row)
            expect = [row["sum"], row["avgpt"]]
            if place in WITH_COPY:
                expect = [pytest.approx(each, rel=0.01) for each in expect]
            assert [ours["sum"], ours["avgpt"]] == expect, (place, name)
            assert ours["tps"] == pytest.approx(row["tps"], rel=0.2), (place, name)


def signed(fields: dict[str, str]) -> dict[str, str]:
    """Return the fields of a request that ann has signed."""
    given = fields | {"AccessKey": "ann"}
    content = "".join(given[key] for key in sorted(given))
    digest = hmac.digest(USERS["ann"].encode(), content.encode(), "sha1")
    return given | {"Signature": b64encode(digest).decode()}


async def answers(port: int, *, creates: bool = False) -> list[Answer]:
    """Return what a tool is told of users and ACLs."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    for name, secret in USERS.items() if creates else ():
        body = f'{{"username":"{name}","password":"{secret}","userType":"Normal"}}'.encode()
        assert (await client.ask(CREATE_USER, {"username": name}, body)).code == 0
    asks: list[tuple[int, dict[str, str]]] = [
        (LIST_USER, {}), (LIST_USER, {"filter": "b"}), (LIST_USER, {"filter": "none"}),
        (GET_USER, {"username": "bob"}), (GET_USER, {"username": "none"}), (GET_USER, {}),
        (GET_ACL, {"subject": "User:bob"}), (GET_ACL, {"subject": "User:none"}), (LIST_ACL, {}),
    ]  # fmt: skip
    found = [await client.ask(code, signed(fields)) for code, fields in asks]
    client.close()
    await asyncio.sleep(0)
    return found


def rows_of(answer: Answer) -> Any:
    """Return the users in an answer, without secrets."""
    found = answer.json if answer.body else None
    for row in found if isinstance(found, list) else [found] if found else []:
        row.pop("password", None)
    return found


@pytest.mark.parametrize("has_users", [True, False])
def test_users_and_acls_are_answered_as_by_a_broker(
    tmp_path: Path, brokers: Brokers, *, has_users: bool
) -> None:
    auth = {"authenticationMetadataProvider": PROVIDER, "authConfigPath": tmp_path / "auth"}
    with brokers.running(tmp_path / "broker", **(auth if has_users else {})) as broker:
        expected = run(answers(broker.port, creates=has_users))
    users = tmp_path / "users"
    users.write_text("".join(f"{name}:{secret}\n" for name, secret in USERS.items()))
    more = ("--users", users) if has_users else ()
    with served(tmp_path / "store", "--writable", "--new", *more) as port:
        found = run(answers(port))
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.code, rows_of(ours)) == (theirs.code, rows_of(theirs)), (ours, theirs)
        # An exception that a broker does not handle is its remark, with the place in the code.
        assert theirs.remark == ours.remark or ours.remark in theirs.remark.split(", ")[0]
