"""Checks of a message before it is encoded, except for delays.

Source: RocketMQ ``HookUtils.checkBeforePutMessage``, ``checkInnerBatch``, ``MultiDispatch``.
"""

from collections.abc import Callable

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.message import (
    LMQ_PREFIX,
    TRANSACTION_MASK,
    Message,
    MessageProperty,
    SysFlag,
    is_queued,
)
from cqstore.store.record.message_check import fault_of
from cqstore.store.record.properties import delay_level
from cqstore.store.service.dispatching.record_units import allows_light_queues

_LIGHT = MessageProperty.INNER_MULTI_DISPATCH
_LIGHT_OFFSETS = MessageProperty.INNER_MULTI_QUEUE_OFFSET
_INNER_NUM = MessageProperty.INNER_NUM


def refuse_inner_batch(message: Message) -> None:
    """Refuse inner batches: only BatchCQ topics have them, and writing those is not supported yet.

    Raises:
        IllegalMessageError: it is an inner batch, or has their number as a property.
    """
    if message.sys_flag & SysFlag.INNER_BATCH:
        raise IllegalMessageError(
            f"an inner batch needs a BatchCQ topic: {message.topic!r} is not one"
        )
    if _INNER_NUM in message.properties:
        raise IllegalMessageError("INNER_NUM without the inner batch flag")


def refuse_light_offsets(message: Message) -> None:
    """Refuse offsets in light queues: other offsets than the store's would create wrong units.

    Raises:
        IllegalMessageError: the message has such offsets.
    """
    both = {_LIGHT, _LIGHT_OFFSETS} <= message.properties.keys()
    if both and has_units(message):
        raise IllegalMessageError(f"{_LIGHT_OFFSETS} must not be set: the store assigns it")


def has_units(message: Message) -> bool:
    """Return whether light queues may get its units: an offset without a unit would be a gap."""
    return is_queued(message.sys_flag) and allows_light_queues(message.topic)


def light_names(message: Message, check_topic: Callable[[str], object]) -> list[str]:
    """Return the light queues that a message requests; ``check_topic`` refuses names.

    A list that RocketMQ could not parse again is refused.

    Raises:
        IllegalMessageError: a name is not a light queue, is a duplicate, or is refused.
    """
    names = str.split(message.properties[_LIGHT], ",")  # plain text, whatever class it had
    for name in names:
        if not name.startswith(LMQ_PREFIX):
            raise IllegalMessageError(f"{name!r} in INNER_MULTI_DISPATCH is not a light queue")
        check_topic(name)
    if len(set(names)) != len(names):
        raise IllegalMessageError("INNER_MULTI_DISPATCH names a light queue twice")
    return names


def check_light_size(size: int, limit: int) -> None:
    """Refuse a record for light queues that is larger than the message size: it has no allowance.

    Raises:
        IllegalMessageError: the record is larger.
    """
    if size > limit:
        raise IllegalMessageError(f"record of {size} bytes for light queues, at most {limit}")


def check_client_batch(batch: Message, max_size: int) -> None:
    """Refuse a client batch that is not a batch of plain messages of one queue.

    Raises:
        IllegalMessageError: it is empty, too large, or invalid; the error has the reason.
    """
    if (fault := fault_of(batch)) is not None:
        raise IllegalMessageError(fault)
    if len(batch.body) > max_size:
        raise IllegalMessageError(f"batch of {len(batch.body)} bytes, at most {max_size}")
    if batch.sys_flag & (TRANSACTION_MASK | SysFlag.INNER_BATCH):
        raise IllegalMessageError("a client batch cannot hold transactions or inner batches")
    if delay_level(batch.properties) > 0:
        raise IllegalMessageError("a client batch cannot be delayed")
    if not batch.body:
        raise IllegalMessageError("the batch is empty")
