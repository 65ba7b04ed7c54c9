"""Signatures of RocketMQ's ACL: requests that a user has not signed are refused."""

import hmac
from base64 import b64encode
from pathlib import Path

import pytest

from cqstore.serve.users import Users
from cqstore.store.errors import StoreConfigError, StoreIOError
from tests.kit.remoting_client import BINARY, JSON, Answer
from tests.kit.remoting_server import serving
from tests.kit.waiting import run

ROUTE, HEARTBEAT, TOPICS = 105, 34, 206
SIGNED = "IUc8rrO/0gDch8CjObLQsW2rsiA="
"""RocketMQ's ``AclSignerTest``: "RocketMQ", signed with 12345678."""
USERS = Users({"Rocket": "12345678", "other": "87654321"})
FIELDS = {"AccessKey": "Rocket", "topic": "MQ", "Signature": SIGNED}
"""The values but the signature, by their names in order, are "RocketMQ"."""


@pytest.mark.parametrize("form", [JSON, BINARY])
def test_a_signed_request_is_answered(root: Path, form: int) -> None:
    async def story() -> None:
        async with serving(root, users=USERS) as found:
            client = await found.client()
            assert (await client.ask(ROUTE, FIELDS, form=form)).code == 17
            of_body = {"AccessKey": "Rocket", "Signature": SIGNED}
            answer = await client.ask(HEARTBEAT, of_body, b"MQ", form)
            assert (answer.code, "not valid JSON" in answer.remark) == (1, True)

    run(story())


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"AccessKey": ""}, "username cannot be null."),
        ({"AccessKey": "nobody"}, "User:nobody is not found."),
        ({"AccessKey": "other"}, "check signature failed."),
        ({"topic": "MQ2"}, "check signature failed."),
        ({"added": ""} | {"z": "x"}, "check signature failed."),
        ({"Signature": ""}, "check signature failed."),
        ({"Signature": SIGNED[:-1]}, "check signature failed."),
        ({"Signature": "ö"}, "check signature failed."),
    ],
)
def test_others_are_refused(root: Path, changes: dict[str, str], remark: str) -> None:
    async def story() -> None:
        async with serving(root, users=USERS) as found:
            client = await found.client()
            refused = await client.ask(ROUTE, FIELDS | changes)
            assert (refused.code, refused.remark) == (16, remark)
            for code in (11, TOPICS, 307, 999):
                unsigned = await client.ask(code)
                assert (unsigned.code, unsigned.remark) == (16, "username cannot be null.")
            await client.ask(ROUTE, FIELDS)

    run(story())


def test_without_users_signatures_are_ignored(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            fields = FIELDS | {"Signature": "none", "topic": "t"}
            assert (await (await found.client()).ask(ROUTE, fields)).code == 0

    run(story())


@pytest.mark.parametrize(("version", "code"), [(399, 17), (400, 16)])
def test_old_clients_add_a_field_after_they_have_signed(
    root: Path, monkeypatch: pytest.MonkeyPatch, version: int, code: int
) -> None:
    monkeypatch.setattr("tests.kit.remoting_client.VERSION", version)

    async def story() -> None:
        async with serving(root, users=USERS) as found:
            fields = FIELDS | {"_UNIQUE_KEY_QUERY": "true"}
            assert (await (await found.client()).ask(ROUTE, fields)).code == code

    run(story())


GET_USER, LIST_USER, GET_ACL, LIST_ACL = 3004, 3005, 3009, 3010


def signed(fields: dict[str, str]) -> dict[str, str]:
    """Return the fields of a request that Rocket has signed."""
    given = fields | {"AccessKey": "Rocket"}
    content = "".join(given[key] for key in sorted(given))
    digest = hmac.digest(b"12345678", content.encode(), "sha1")
    return given | {"Signature": b64encode(digest).decode()}


def test_users_are_listed_without_secrets(root: Path) -> None:
    def row(name: str) -> dict[str, str]:
        return {"username": name, "userType": "Normal", "userStatus": "enable"}

    async def story() -> None:
        async with serving(root, users=USERS) as found:
            client = await found.client()

            async def ask(code: int, **fields: str) -> Answer:
                answer = await client.ask(code, signed(fields))
                assert b"1234" not in answer.body
                return answer

            assert (await ask(LIST_USER)).json == [row("Rocket"), row("other")]
            assert (await ask(LIST_USER, filter=" ")).json == [row("Rocket"), row("other")]
            assert (await ask(LIST_USER, filter="the")).json == [row("other")]
            none = await ask(LIST_USER, filter="nobody")
            assert (none.code, none.body) == (0, b"")
            assert (await ask(GET_USER, username="other")).json == row("other")
            none = await ask(GET_USER, username="nobody")
            assert (none.code, none.body) == (0, b"")
            blank = await ask(GET_USER, username=" ")
            assert (blank.code, blank.remark) == (29, "The username is blank")
            assert (await ask(GET_ACL, subject="User:other")).code == 1
            unknown = await ask(GET_ACL, subject="User:nobody")
            assert (unknown.code, unknown.remark) == (16, "The subject is not exist.")
            assert (await ask(LIST_ACL)).code == 1

    run(story())


@pytest.mark.parametrize("code", [GET_USER, LIST_USER, GET_ACL, LIST_ACL])
def test_without_users_there_are_none_to_list(root: Path, code: int) -> None:
    async def story() -> None:
        async with serving(root) as found:
            answer = await (await found.client()).ask(code, {"username": "u", "subject": "User:u"})
            assert (answer.code, answer.body) == (1, b"")

    run(story())


def test_a_file_names_users(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# comment\n\n  Rocket:12345678  \nsecond:with:colons\n")
    found = Users.read(file)
    assert found._secrets == {"Rocket": b"12345678", "second": b"with:colons"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\n", "line 1"), ("a:\n", "line 1"), ("a:b\na:c\n", "line 2"), ("# a:b\n", "no user"),
    ],
)  # fmt: skip
def test_invalid_files_are_named_without_secrets(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "users"
    file.write_text(text)
    with pytest.raises(StoreConfigError, match=words) as caught:
        Users.read(file)
    assert ":c" not in str(caught.value)
    with pytest.raises(StoreIOError):
        Users.read(tmp_path / "none")
