"""The position to which a group is reset, from the arguments of a program."""

from typing import Literal

from cqstore.broker.groups.group_offsets import (
    Target,
    at_time,
    begin_of_queue,
    end_of_queue,
    exactly,
)
from cqstore.store.errors import RefusedStoreError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.arguments import check_numbers
from cqstore.store.service.reading.store_times import Time


def reset_target(
    store: MessageStore, to: Literal["earliest", "latest"] | int | None, time: Time | None
) -> Target:
    """Return the target of ``EmbeddedLog.reset_group``.

    Raises:
        RefusedStoreError: both arguments are given, or neither.
        TypeError: ``to`` is neither an end nor an offset.
    """
    if (to is None) == (time is None):
        raise RefusedStoreError("reset_group() takes exactly one of to= and time=")
    if time is not None:
        return at_time(store, time)
    if to == "latest":
        return end_of_queue
    if to == "earliest":
        return begin_of_queue
    check_numbers(to=to)
    assert to is not None
    return exactly(int(to))
