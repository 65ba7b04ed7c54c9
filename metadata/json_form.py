"""The form of JSON files: read as a broker reads them, each with its ``.bak`` behind it.

Source: RocketMQ ``ConfigManager.load``, ``TopicConfigManager.decode``,
``SubscriptionGroupManager.decode``, ``ConsumerOffsetManager.decode``,
``LmqConsumerOffsetManager``, ``ScheduleMessageService.decode``.
"""

from collections.abc import Callable
from pathlib import Path

from metadata.model import BrokerMetadata, Form, Json, Table
from metadata.values import (
    bits_of,
    configs_of,
    json_object,
    numbers_of,
    object_of,
    offsets_of,
    version_of,
)
from store.errors import CorruptionError, StoreError, os_errors
from store.files import read_file

_TOPICS, _GROUPS, _DELAYS = "topics.json", "subscriptionGroup.json", "delayOffset.json"
_OFFSETS, _LMQ_OFFSETS = "consumerOffset.json", "lmqConsumerOffset.json"
_FILES = (_TOPICS, _GROUPS, _OFFSETS, _LMQ_OFFSETS)
_MAX_BYTES = 1 << 30
Decoder = Callable[[Json, BrokerMetadata], None]


def read_json(config: Path) -> BrokerMetadata | None:
    """Return what the files below ``config`` hold; ``None`` if none of them is there.

    A file that is missing, empty or torn is read from its ``.bak``, as a broker does it. That it
    was, and what neither holds, is among ``faults``.
    """
    present = [name for name in _FILES if _either(config / name)]
    if not present:
        return None
    found = BrokerMetadata(Form.JSON, config)
    for name in present:
        read_table(config / name, _DECODERS[name], found)
    read_delays(config, found)
    return found


def read_delays(config: Path, into: BrokerMetadata) -> None:
    """Add the offsets of delay levels, which are in a file of JSON under every form."""
    if _either(config / _DELAYS):
        read_table(config / _DELAYS, _delays, into)


def read_table(path: Path, decode: Decoder, into: BrokerMetadata) -> None:
    """Read one file, or its ``.bak``, into its tables; what is wrong becomes a fault."""
    try:
        decode(_content(path), into)
    except StoreError as exc:
        into.faults.append(exc)
        try:
            decode(_content(_backup(path)), into)
        except StoreError as second:
            into.faults.append(second)


def _content(path: Path) -> Json:
    with os_errors("read a file of the broker's", path):
        try:
            data = read_file(path, _MAX_BYTES)
        except FileNotFoundError as exc:
            raise CorruptionError("this file of the broker's is missing", path=path) from exc
    if not data:
        raise CorruptionError("this file of the broker's is empty", path=path)
    try:
        return json_object(data)
    except ValueError as exc:
        raise CorruptionError(f"this is no file of a broker's: {exc}", path=path) from exc


def _either(path: Path) -> bool:
    return path.exists() or _backup(path).exists()


def _backup(path: Path) -> Path:
    return path.with_name(f"{path.name}.bak")


def _checked(decode: Decoder, name: str) -> Decoder:
    """Return ``decode`` with its ``ValueError`` as an error that names the file."""

    def checked(content: Json, into: BrokerMetadata) -> None:
        try:
            decode(content, into)
        except ValueError as exc:
            raise CorruptionError(
                f"this is no table of a broker's: {exc}", path=into.path / name
            ) from exc

    return checked


def _decode_topics(content: Json, into: BrokerMetadata) -> None:
    into.topics = configs_of(content, "topicConfigTable")
    _version(content, Table.TOPICS, into)


def _decode_groups(content: Json, into: BrokerMetadata) -> None:
    groups, forbidden = (
        configs_of(content, name) for name in ("subscriptionGroupTable", "forbiddenTable")
    )
    into.forbidden = {group: bits_of(row) for group, row in forbidden.items()}
    into.groups = groups
    _version(content, Table.GROUPS, into)


def _decode_offsets(content: Json, into: BrokerMetadata) -> None:
    into.offsets |= offsets_of(object_of(content, "offsetTable"))
    into.offsets |= offsets_of(object_of(content, "lmqOffsetTable"))
    if Table.OFFSETS not in into.versions:
        _version(content, Table.OFFSETS, into)


def _decode_delays(content: Json, into: BrokerMetadata) -> None:
    into.delay_offsets = numbers_of(object_of(content, "offsetTable"))


def _version(content: Json, table: Table, into: BrokerMetadata) -> None:
    into.versions[table] = version_of(object_of(content, "dataVersion"))


_delays = _checked(_decode_delays, _DELAYS)
_DECODERS: dict[str, Decoder] = {
    _TOPICS: _checked(_decode_topics, _TOPICS),
    _GROUPS: _checked(_decode_groups, _GROUPS),
    _OFFSETS: _checked(_decode_offsets, _OFFSETS),
    _LMQ_OFFSETS: _checked(_decode_offsets, _LMQ_OFFSETS),
}
