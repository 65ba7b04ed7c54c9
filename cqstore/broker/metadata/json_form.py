"""Reader of the JSON form. Like a broker, it reads each file, or else its ``.bak``.

Source: RocketMQ ``ConfigManager.load``, ``TopicConfigManager.decode``,
``SubscriptionGroupManager.decode``, ``ConsumerOffsetManager.decode``,
``LmqConsumerOffsetManager``, ``ScheduleMessageService.decode``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cqstore.broker.metadata.locations import FILES
from cqstore.broker.metadata.model import (
    BrokerMetadata,
    DataVersion,
    Form,
    Json,
    Offsets,
    Remark,
    Table,
)
from cqstore.broker.metadata.table_kinds import FILE_KINDS, PULL_OFFSETS
from cqstore.store.broker_files.fastjson import object_in
from cqstore.store.broker_files.file_names import (
    DELAYS_FILE,
    GROUPS_FILE,
    LMQ_OFFSETS_FILE,
    MAX_TABLE_BYTES,
    OFFSETS_FILE,
    TOPICS_FILE,
    backup_of,
    is_either_there,
)
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreError, os_errors
from cqstore.store.files import read_file
from cqstore.store.path_kind import exists
from cqstore.store.service.scheduling.delay_offsets import offsets_of_levels

Decoder = Callable[[Json, BrokerMetadata], None]


def read_json(config: Path) -> BrokerMetadata | None:
    """Return the content of the files below ``config``; ``None`` if none of them exists.

    An empty or torn file is read from its ``.bak``, as in a broker. The fault, and content that is
    in neither, is recorded in ``faults``. A backup without its file is recorded in ``remarks``: a
    broker reads the backup, and nothing is damaged.
    """
    present = [name for name in FILES if is_either_there(config / name)]
    if not present:
        return None
    found = BrokerMetadata(Form.JSON, config)
    for name in present:
        read_table(config / name, _DECODERS[name], found)
    read_delays(config, found)
    return found


def read_json_file(config: Path, name: str) -> BrokerMetadata:
    """Return the content of the file ``name``, one of ``FILES``, or else of its ``.bak``.

    A missing, empty or torn file is only a remark if its ``.bak`` can be read. A file that the
    system cannot read now is a fault, because its content may be newer.
    """
    found = BrokerMetadata(Form.JSON, config)
    read_table(config / name, _DECODERS[name], found)
    if len(found.faults) == 1 and type(found.faults[0]) is CorruptionError:
        found.remark(Remark.OLDER_BACKUP, name)
        found.faults.clear()
    return found


UNKNOWN_FIELDS_FOUND = "the files have fields that no other form is known to support"
"""Reason why files cannot be converted, see ``unknown_fields``."""


def unknown_fields(config: Path) -> list[str]:
    """Return ``FILE: FIELD`` for the fields of the files that this module does not read.

    Empty fields, unreadable files, and the pull offsets of RocketMQ 5.5.0, which no release reads
    again, are left out.
    """
    found: list[str] = []
    for name, fields in _FIELDS.items():
        for path in (config / name, backup_of(config / name)):
            try:
                content = _content(path, name)
            except StoreError:
                continue
            known = {*fields, PULL_OFFSETS}
            found += [f"{name}: {key}" for key in content if key not in known and content[key]]
            break
    return found


def other_fields(config: Path, name: str) -> Json:
    """Return the fields of the file ``name`` that this module does not read, with their values.

    They are from the file, or else from its ``.bak``; empty if neither can be read.
    """
    for path in (config / name, backup_of(config / name)):
        try:
            content = _content(path, name)
            _DECODERS[name](content, BrokerMetadata(Form.JSON, config))
        except StoreError:
            continue
        return {key: value for key, value in content.items() if key not in _FIELDS[name]}
    return {}


def read_table_text(name: str, data: bytes) -> BrokerMetadata:
    """Return the metadata that a broker reads from ``data``, the content of the file ``name``.

    Raises:
        CorruptionError: a broker refuses the content.
        RefusedStoreError: it is unknown how a broker interprets the content.
    """
    found = BrokerMetadata(Form.JSON, Path())
    _DECODERS[name](object_in(Path(name), data, FILE_KINDS[name]), found)
    return found


def fault_of(name: str, path: Path) -> StoreError | None:
    """Return why a broker cannot read ``path`` as its file ``name``; ``None`` if it can.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    path.stat()
    try:
        _DECODERS[name](_content(path, name), BrokerMetadata(Form.JSON, path.parent))
    except StoreError as exc:
        return exc
    return None


def offsets_disagree(config: Path) -> list[str]:
    """Return the keys whose offsets differ between the two offset files, if both exist.

    A broker with ``enableLmq`` writes one file, any other broker the other: one file is outdated.
    """
    both = []
    for name in (OFFSETS_FILE, LMQ_OFFSETS_FILE):
        if not is_either_there(config / name):
            return []
        read_table(config / name, _DECODERS[name], found := BrokerMetadata(Form.JSON, config))
        both.append(found.offsets)
    return sorted(key for key in both[0].keys() | both[1] if both[0].get(key) != both[1].get(key))


def read_delays(config: Path, into: BrokerMetadata) -> None:
    """Add the offsets of delay levels, which are in a JSON file with every form."""
    if is_either_there(config / DELAYS_FILE):
        read_table(config / DELAYS_FILE, _delays, into)


def read_table(path: Path, decode: Decoder, into: BrokerMetadata) -> None:
    """Read one file, or its ``.bak``, into its tables; add faults for errors.

    The backup is not used if it is unknown how a broker interprets the file.
    """
    backup = backup_of(path)
    if not exists(path) and exists(backup):
        into.remark(Remark.BACKUP_ALONE, path.name)
    else:
        try:
            decode(_content(path, path.name), into)
        except StoreError as exc:
            into.faults.append(exc)
            if isinstance(exc, RefusedStoreError):
                return
        else:
            return
    try:
        decode(_content(backup, path.name), into)
    except StoreError as exc:
        into.faults.append(exc)


def _content(path: Path, name: str) -> Json:
    """Return the fields of the file ``name``, read from ``path``.

    Raises:
        CorruptionError: the file is missing or empty, or a broker refuses it.
        RefusedStoreError: it is unknown how a broker interprets the file.
        StoreIOError: the file cannot be read.
    """
    with os_errors("read the broker's metadata file", path):
        try:
            data = read_file(path, MAX_TABLE_BYTES)
        except FileNotFoundError as exc:
            raise CorruptionError("the broker's metadata file is missing", path=path) from exc
    if not data:
        raise CorruptionError("the broker's metadata file is empty", path=path)
    return object_in(path, data, FILE_KINDS[name])


def _checked(decode: Decoder, name: str) -> Decoder:
    """Return ``decode`` with ``ValueError`` replaced by an error that names the file."""

    def checked(content: Json, into: BrokerMetadata) -> None:
        try:
            decode(content, into)
        except ValueError as exc:
            raise CorruptionError(
                f"a broker cannot read this file: {exc}", path=into.path / name
            ) from exc

    return checked


def _decode_topics(content: Json, into: BrokerMetadata) -> None:
    topics: dict[str, Json] = _table(content, "topicConfigTable")
    _version(content, Table.TOPICS, into)
    into.topics = topics


def _decode_groups(content: Json, into: BrokerMetadata) -> None:
    groups: dict[str, Json] = _table(content, "subscriptionGroupTable")
    _version(content, Table.GROUPS, into)
    into.groups = groups
    into.forbidden = _table(content, "forbiddenTable", takes_null=True)


def _decode_offsets(content: Json, into: BrokerMetadata) -> None:
    rows: Offsets = _table(content, "offsetTable", takes_null=True)
    light: dict[str, int] = _table(content, "lmqOffsetTable", takes_null=True)
    for key, offset in light.items():
        rows.setdefault(key, {})[0] = offset  # other queues of an LMQ group are in the first table
    into.offsets |= rows
    if content.get(PULL_OFFSETS):
        name = LMQ_OFFSETS_FILE if "lmqOffsetTable" in content else OFFSETS_FILE
        into.remark(Remark.PULL_OFFSETS, name)
    if Table.OFFSETS not in into.versions:
        _version(content, Table.OFFSETS, into)


def _decode_delays(content: Json, into: BrokerMetadata) -> None:
    into.delay_offsets = offsets_of_levels(content)


def _table(content: Json, name: str, *, takes_null: bool = False) -> Any:
    """Return a table of a file; empty if the table is missing.

    Raises:
        ValueError: the table is null, with which a broker does not start.
    """
    table = content.get(name, {})
    if table is None and not takes_null:
        raise ValueError(f"{name} is null")
    return table or {}


def _version(content: Json, table: Table, into: BrokerMetadata) -> None:
    """Read the data version of a table; only that of offsets may be null.

    Raises:
        ValueError: the version or its counter is null.
    """
    try:
        if "dataVersion" in content:
            into.versions[table] = DataVersion.of(content["dataVersion"])
    except ValueError:
        if table is not Table.OFFSETS:
            raise


_OFFSETS_FIELDS = ("offsetTable", "groupTopicMap", "dataVersion")
_FIELDS = {
    TOPICS_FILE: {"topicConfigTable", "dataVersion"},
    GROUPS_FILE: {"subscriptionGroupTable", "forbiddenTable", "dataVersion"},
    OFFSETS_FILE: {*_OFFSETS_FIELDS},
    LMQ_OFFSETS_FILE: {*_OFFSETS_FIELDS, "lmqOffsetTable"},
}
"""All fields that a broker writes. It derives ``groupTopicMap`` and does not read it."""
_delays = _checked(_decode_delays, DELAYS_FILE)
_DECODERS: dict[str, Decoder] = {
    TOPICS_FILE: _checked(_decode_topics, TOPICS_FILE),
    GROUPS_FILE: _checked(_decode_groups, GROUPS_FILE),
    OFFSETS_FILE: _checked(_decode_offsets, OFFSETS_FILE),
    LMQ_OFFSETS_FILE: _checked(_decode_offsets, LMQ_OFFSETS_FILE),
    DELAYS_FILE: _delays,
}
