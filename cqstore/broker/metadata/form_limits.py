"""Content that a form of metadata cannot store, reported by name before a byte is written.

Source: RocketMQ ``ConfigHelper`` (a name's length is a ``short``), ``SubscriptionGroupManagerV2``
(has no forbidden table), ``ConsumerOffsetManager`` (keeps pull offsets only in memory),
``RocksDBSubscriptionGroupManager.decodeForbidden`` (an ``Integer``).
"""

import json
from collections.abc import Iterator
from itertools import chain

from cqstore.broker.metadata.model import BrokerMetadata, Form, Offsets
from cqstore.broker.metadata.offset_keys import fitting_readings
from cqstore.store.errors import RefusedStoreError
from cqstore.store.sentences import some_of

MAX_NAME_BYTES = (1 << 15) - 1
"""Maximum size of a name in a key of version 2, in bytes."""
_INT_BITS, _LONG_BITS = 31, 63
_MAX_SHOWN = 5


def refuse_unfit(found: BrokerMetadata, form: Form) -> None:
    """Refuse metadata that ``form`` cannot store, see ``refusals``.

    Raises:
        RefusedStoreError: ``form`` cannot store a part of the metadata.
    """
    refused = list(refusals(found, form))
    if refused:
        shown = some_of(refused[:_MAX_SHOWN], len(refused), "; ")
        raise RefusedStoreError(
            f"cannot store the metadata in the form {form}: {shown}", path=found.path
        )


def refusals(found: BrokerMetadata, form: Form) -> Iterator[str]:
    """Yield a sentence for each part of ``found`` that a broker cannot read from ``form``."""
    yield from _unfit_names(found)
    yield from _unfit_numbers(found)
    if form is Form.V2:
        yield from _unfit_for_v2(found)
    elif lone := lone_pull_offsets(found):
        yield f"{form} does not support offsets of pull consumers: {_few(lone)}"


def lone_pull_offsets(found: BrokerMetadata) -> Offsets:
    """Return the pull offsets of queues for which the group has no committed offset.

    A broker of release 5.5 records the pull offsets of every group, for statistics and for POP.
    Without pull offsets, a group continues from its committed offset.

    Source: RocketMQ ``PullMessageProcessor.tryCommitOffset``, ``PopConsumerService``.
    """
    rows: Offsets = {}
    for key, row in found.pull_offsets.items():
        committed = found.offsets.get(key, {})
        rows[key] = {queue_id: at for queue_id, at in row.items() if queue_id not in committed}
    return {key: row for key, row in rows.items() if row}


def _unfit_names(found: BrokerMetadata) -> Iterator[str]:
    """Yield a sentence for each name that no form can store."""
    in_forbidden = chain.from_iterable(found.forbidden.values())
    tables = (found.topics, found.groups, found.forbidden, in_forbidden)
    for name in chain(*tables, found.offsets, found.pull_offsets):
        if not name:
            yield "a name is empty"
        elif not _is_text(name):
            yield f"the name {name!r} is not valid UTF-8"


def _unfit_numbers(found: BrokerMetadata) -> Iterator[str]:
    """Yield a sentence for each number that no form can store."""
    yield from _unfit_offsets("offset", found.offsets)
    yield from _unfit_offsets("pull offset", found.pull_offsets)
    for group, row in found.forbidden.items():
        for topic, bits in row.items():
            if not _fits(bits, _INT_BITS):
                where = f"the forbiddenTable entry of group {group!r} for topic {topic!r}"
                yield f"{where}: {bits} does not fit in 32 bits"
    for table, version in found.versions.items():
        if not all(_fits(number, _LONG_BITS) for number in version):
            yield f"the data version of {table}: {version} does not fit in 64 bits"
    for name, config in chain(found.topics.items(), found.groups.items()):
        try:
            json.dumps(config, allow_nan=False)
        except ValueError:
            yield f"the configuration of {name!r} has a number that JSON does not support"


def _unfit_offsets(what: str, offsets: Offsets) -> Iterator[str]:
    for key, row in offsets.items():
        for queue_id, offset in row.items():
            where = f"the {what} of {key!r}, queue {queue_id}"
            if not _fits(queue_id, _INT_BITS):
                yield f"{where}: the queue ID does not fit in 32 bits"
            elif not _fits(offset, _LONG_BITS):
                yield f"{where}: {offset} does not fit in 64 bits"


def _unfit_for_v2(found: BrokerMetadata) -> Iterator[str]:
    """Yield a sentence for each part that version 2 cannot store."""
    groups = [group for group, row in found.forbidden.items() if row]
    if groups:
        yield f"v2 does not support the forbiddenTable, which has groups: {_few(groups)}"
    for key in chain(found.offsets, found.pull_offsets):
        fitting = fitting_readings(key, found.topics, found.groups)
        if not fitting:
            yield f"the key of the offset {key!r} is not of the form topic@group"
        elif len(fitting) > 1:
            ways = " or ".join(f"topic {topic!r} of group {group!r}" for topic, group in fitting)
            yield f"the offset of {key!r} is ambiguous: {ways}"
        yield from _unfit_lengths(key, *fitting[:1])
    for kind, table in (("topicName", found.topics), ("groupName", found.groups)):
        for name, config in table.items():
            yield from _unfit_lengths(name, (name,))
            if config.get(kind) != name:  # v2 uses the name in the configuration
                yield f"the configuration of {name!r} has another {kind}: {config.get(kind)!r}"


def _unfit_lengths(key: str, *names: tuple[str, ...]) -> Iterator[str]:
    for name in chain.from_iterable(names):
        size = len(name.encode("utf-8", "surrogatepass"))
        if size > MAX_NAME_BYTES:
            yield f"{key[:40]!r}… has a name of {size} bytes, the limit of v2 is {MAX_NAME_BYTES}"


def _fits(number: int, bits: int) -> bool:
    return -(1 << bits) <= number < 1 << bits


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _few(names: Offsets | list[str]) -> str:
    return some_of(sorted(names)[:_MAX_SHOWN], len(names))
