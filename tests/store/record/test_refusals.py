"""What no record can hold is refused with the oracle's sentence, whatever else is wrong with it."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.encoding_rules import EncodingRules
from cqstore.store.record.message import Message
from cqstore.store.record.message_copy import copy_message
from cqstore.store.settings.config import StoreConfig
from tests.kit.messages import MAX_BODY, messages
from tests.kit.oracle.encoder import MessageEncoder


def check_topic(topic: str) -> None:
    """Refuse a name, as queues do."""
    if "/" in topic:
        raise IllegalMessageError(f"{topic!r} is no folder's name")


def outcome(call: Callable[[], object]) -> object:
    """Return how a call was refused; ``None``: it was not."""
    try:
        call()
    except Exception as exc:  # noqa: BLE001 - of both the same is asked
        return type(exc), str(exc)
    return None


@pytest.mark.slow
@settings(max_examples=100)
@given(message=messages, is_sealed=st.booleans(), is_wide=st.booleans())
def test_refusals_are_those_of_the_oracle(
    message: Message, *, is_sealed: bool, is_wide: bool
) -> None:
    config = StoreConfig(
        max_message_size=MAX_BODY, enabled_append_prop_crc=is_sealed,
        auto_message_version_on_topic_len=is_wide,
    )  # fmt: skip
    rules, oracle = EncodingRules(config, check_topic), MessageEncoder(config, check_topic)
    with suppress(TypeError):  # of what is no mapping: that is said further on
        message = copy_message(message)
    refused = outcome(lambda: oracle.encode(message))
    for _ in range(2):  # the second time it knows the topic
        assert outcome(lambda: rules.check(message)) == refused
