"""``Message`` as a programmer meets it: its signature, its help, and errors that name arguments."""

import inspect
from dataclasses import fields
from typing import Any

import pytest

from cqstore.store.record.message import Message


def test_its_signature_and_help_name_the_fields() -> None:
    names = [field.name for field in fields(Message)]
    signature = inspect.signature(Message)
    assert [*signature.parameters] == names
    required = [name for name, each in signature.parameters.items() if each.default is each.empty]
    assert required == ["topic", "body"]
    assert signature.parameters["queue_id"].default == 0
    reported = inspect.getdoc(Message) or ""
    assert "to be put" in reported
    assert "``properties``" in reported


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({}, ["topic", "body"]), ({"topic": "t"}, ["body"]), ({"body": b""}, ["topic"]),
        ({"topic": "t", "body": b"", "colour": 1}, ["colour"]),
    ],
)  # fmt: skip
def test_an_argument_that_lacks_or_is_none_is_named(
    words: dict[str, Any], named: list[str]
) -> None:
    with pytest.raises(TypeError) as found:
        Message(**words)
    assert all(name in str(found.value) for name in named)
