"""Values that all forms share, checked: a broker's JSON says little of what it must be.

Each raises ``ValueError`` with a sentence; the reader of a form adds the position.
"""

from collections.abc import Mapping

from cqstore.broker.metadata.model import DataVersion, Json, Offsets
from cqstore.store.broker_files.fastjson import broker_object
from cqstore.store.java_numbers import LONG_MAX


def json_object(data: bytes) -> Json:
    """Return the object that ``data`` is, keys without quotes included."""
    return broker_object(data)


def object_of(content: Mapping[str, object], name: str) -> Json:
    """Return the object under ``name``, an empty one where there is none.

    Raises:
        ValueError: it is something else.
    """
    found = content.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{name} is no object")  # noqa: TRY004 - it is the text's fault
    return found


def configs_of(content: Mapping[str, object], name: str) -> dict[str, Json]:
    """Return a table of configurations: name → object.

    Raises:
        ValueError: it is none.
    """
    return {key: object_of({key: each}, key) for key, each in object_of(content, name).items()}


def version_of(found: Mapping[str, object]) -> DataVersion:
    """Return a ``DataVersion`` from its JSON.

    Raises:
        ValueError: a field is no number.
    """
    numbers = [found.get(name, 0) for name in ("stateVersion", "timestamp", "counter")]
    if not all(type(number) is int for number in numbers):
        raise ValueError("the data version has a field that is no number")
    return DataVersion(*numbers)  # type: ignore[arg-type] # asked above


def numbers_of(found: Mapping[str, object]) -> dict[int, int]:
    """Return queue ids or levels → offsets.

    Raises:
        ValueError: one is no number.
    """
    return {_number(key): _number(value) for key, value in found.items()}


def offsets_of(found: Mapping[str, object]) -> Offsets:
    """Return ``topic@group`` → queue id → offset; a light queue's offset may be a bare number.

    Raises:
        ValueError: one is no number.
    """
    table: Offsets = {}
    for key, row in found.items():
        try:
            table[key] = numbers_of(row) if isinstance(row, dict) else {0: _number(row)}
        except ValueError as exc:
            raise ValueError(f"the offset of {key!r}: {exc}") from exc
    return table


def bits_of(found: Mapping[str, object]) -> dict[str, int]:
    """Return topic → bits of one group's forbidden table."""
    return {topic: _number(bits) for topic, bits in found.items()}


def _number(value: object) -> int:
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and value.isascii():
        value = int(value)
    if type(value) is not int or not -LONG_MAX - 1 <= value <= LONG_MAX:
        raise ValueError(f"{value!r} is no number of 64 bits")
    return value
