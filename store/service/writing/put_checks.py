"""Checks of a message before it is encoded, except for delays.

Source: RocketMQ ``HookUtils.checkBeforePutMessage``, ``checkInnerBatch``, ``MultiDispatch``.
"""

from collections.abc import Callable

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.client_batch import decode_client_batch
from cqstore.store.record.message import (
    LMQ_PREFIX,
    MAX_BATCH_SIZE,
    TRANSACTION_MASK,
    Message,
    MessageProperty,
    SysFlag,
    is_queued,
)
from cqstore.store.record.message_check import fault_of
from cqstore.store.record.message_copy import copy_message
from cqstore.store.record.properties import delay_level
from cqstore.store.service.dispatching.record_units import allows_light_queues, batch_size_of

_LIGHT = MessageProperty.INNER_MULTI_DISPATCH
_LIGHT_OFFSETS = MessageProperty.INNER_MULTI_QUEUE_OFFSET
_INNER_NUM = MessageProperty.INNER_NUM


def inner_batch_size(message: Message) -> int:
    """Return the number of messages in an inner batch; 0: ``message`` is not one.

    Raises:
        IllegalMessageError: an inner batch without a valid number would have no unit, or
            ``INNER_NUM`` is in another message.
    """
    number = message.properties.get(_INNER_NUM)
    if not message.sys_flag & SysFlag.INNER_BATCH:
        if number is not None:
            raise IllegalMessageError("INNER_NUM without the inner batch flag")
        return 0
    size = batch_size_of(number) if type(number) is str else None
    if size is None:
        raise IllegalMessageError(
            f"an inner batch needs INNER_NUM, 1 to {MAX_BATCH_SIZE}: found {number!r:.60}"
        )
    if not is_queued(message.sys_flag):
        raise IllegalMessageError("an inner batch cannot be prepared or rolled back")
    if _LIGHT in message.properties:
        raise IllegalMessageError("an inner batch cannot be in light queues (INNER_MULTI_DISPATCH)")
    return size


def inner_batch_of(batch: Message) -> Message:
    """Return a client batch as the inner batch that RocketMQ's broker makes of it.

    Source: ``SendMessageProcessor.sendBatchMessage``.

    Raises:
        IllegalMessageError: it has no ``UNIQ_KEY``, or its messages cannot be decoded: a broker
            stores messages that no consumer gets.
    """
    if MessageProperty.UNIQ_KEY not in batch.properties:
        raise IllegalMessageError(
            f"a client batch for the BatchCQ topic {batch.topic!r} needs a UNIQ_KEY"
        )
    count = len(decode_client_batch(batch))
    inner = copy_message(batch)
    inner.sys_flag |= SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
    inner.properties[_INNER_NUM] = str(count)
    return inner


def refuse_inner_batch(message: Message) -> None:
    """Refuse an inner batch that would be stored in the schedule topic, or in a client batch.

    Raises:
        IllegalMessageError: it is an inner batch, or has their number as a property.
    """
    if inner_batch_size(message):
        raise IllegalMessageError("an inner batch cannot be delayed or part of a client batch")


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
