r"""The properties string of a record: ``name 01 value 02``, repeated.

Source: RocketMQ ``MessageDecoder.messageProperties2String`` and ``string2messageProperties``.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn

from cqstore.store.errors import IllegalMessageError
from cqstore.store.java_numbers import parse_int
from cqstore.store.record import _properties
from cqstore.store.record.bounded_cache import BoundedCache
from cqstore.store.record.java_hash import java_hash
from cqstore.store.record.message import MessageProperty

MAX_PROPERTIES = 0x7FFF
"""Maximum bytes of properties in a record."""
KEY_SEPARATOR = " "
"""Separator of the keys in the property ``KEYS``."""
NAME_END = "\x01"
VALUE_END = "\x02"
_NAME_END = b"\x01"
_VALUE_END = b"\x02"


def encode_properties(properties: dict[str, str]) -> bytes:
    """Return the stored form of ``properties``, in their order.

    Raises:
        IllegalMessageError: a name or value is empty (readers drop such a pair), holds a separator
            or is not valid Unicode.
        TypeError: a name or value is not a plain ``str``.
    """
    fit = [
        f"{name}\x01{value}\x02"
        for name, value in properties.items()
        if name and value and type(name) is type(value) is str
    ]
    text = "".join(fit)
    if text.count(NAME_END) != len(properties) or text.count(VALUE_END) != len(properties):
        _refuse(properties)
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise IllegalMessageError(f"a property is not valid Unicode: {exc.reason}") from exc


def _refuse(properties: dict[str, str]) -> NoReturn:
    for name, value in properties.items():
        if not type(name) is type(value) is str:
            raise TypeError(
                f"invalid property {name!r:.60} = {value!r:.60}: name and value must be str"
            )
        if not (name and value):
            raise IllegalMessageError(
                f"invalid property {name!r:.60}: name and value must not be empty"
            )
    raise IllegalMessageError("invalid property: the separators 0x01 and 0x02 are not allowed")


def check_key(key: str) -> None:
    """Refuse a text that is not a single key: queries could never find it.

    Spaces separate the keys of ``KEYS``: a caller with several keys sets that property itself.

    Raises:
        IllegalMessageError: the key is empty or contains a space.
    """
    if not key or KEY_SEPARATOR in key:
        raise IllegalMessageError(
            f"invalid key {key!r:.60}: a key must not be empty or contain a space, which separates"
            " keys. Put several keys into the property KEYS"
        )


def check_tag(tag: str) -> None:
    """Refuse a text that is not a single tag: no filter could select it.

    Raises:
        IllegalMessageError: the tag is empty, contains ``||``, or begins or ends with a space.
    """
    if not tag.strip() or "||" in tag or tag != tag.strip():
        raise IllegalMessageError(
            f"invalid tag {tag!r:.60}: a tag must not be empty, start or end with a space, or"
            " contain '||', which separates the tags of a filter"
        )


text_of: Callable[[bytes], str] = _properties.text_of
"""Return the text of UTF-8; invalid bytes are replaced by the characters that Java has for them."""

decode_properties: Callable[[bytes], dict[str, str]] = _properties.decode_properties
"""Return the properties in stored form as a dict.

Segments that RocketMQ's parser drops are dropped: those without a separator, or with an empty name
or value. If a name occurs twice, the last value is used.
"""


def tags_code_of(tags: str | None) -> int:
    """Return the hash of the whole tags text (also of several tags); 0 without tags."""
    return java_hash(tags) if tags else 0


def level_of(delay: object) -> int | None:
    """Return the delay level in the property ``DELAY``, 0 without one; ``None``: it is invalid."""
    if delay is None:
        return 0
    return parse_int(delay) if type(delay) is str else None


def delay_level(properties: Mapping[str, str]) -> int:
    """Return the delay level of a message; it requests a delay if the level is above 0.

    Source: RocketMQ ``Message.getDelayTimeLevel``.

    Raises:
        IllegalMessageError: ``DELAY`` is not a number, at which RocketMQ's recovery would stop.
    """
    delay = properties.get(MessageProperty.DELAY)
    if (level := level_of(delay)) is None:
        raise IllegalMessageError(f"invalid delay level {delay!r:.60} in {MessageProperty.DELAY}")
    return level


def crc_property(crc: int) -> bytes:
    """Return the CRC property; its ten digits are written least significant first (T1)."""
    return _CRC_NAME + str(crc)[::-1].ljust(_CRC_DIGITS, "0").encode() + _VALUE_END


_CRC_NAME = MessageProperty.CRC32.encode() + _NAME_END
_CRC_DIGITS = 10
CRC_PROPERTY_SIZE = len(_CRC_NAME) + _CRC_DIGITS + 1


class DispatchProperties(NamedTuple):
    """The few properties that are needed to dispatch a record."""

    tags_code: int
    tags: str | None
    uniq_key: str | None
    keys: str | None
    delay: str | None
    multi_dispatch: str | None
    multi_queue_offset: str | None
    inner_num: str | None
    inner_base: str | None
    only_tags: bool = True
    """No property but tags: most records, and the fast path of dispatch."""


_NAMES = (
    MessageProperty.TAGS,
    MessageProperty.UNIQ_KEY,
    MessageProperty.KEYS,
    MessageProperty.DELAY,
    MessageProperty.INNER_MULTI_DISPATCH,
    MessageProperty.INNER_MULTI_QUEUE_OFFSET,
    MessageProperty.INNER_NUM,
    MessageProperty.INNER_BASE,
)
_NONE = DispatchProperties(0, None, None, None, None, None, None, None, None)
_CACHED_BYTES = 256
_cache = BoundedCache[bytes, DispatchProperties](8 << 20)


def dispatch_properties(data: bytes) -> DispatchProperties:
    """Return the properties in ``data`` that dispatch needs.

    Producers often send the same properties again, so short strings are cached; the memory is
    bounded.
    """
    if not data:
        return _NONE
    found = _cache.get(data)
    if found is None:
        found = _read(data)
        if len(data) <= _CACHED_BYTES and found.uniq_key is None and found.keys is None:
            _cache.learn(data, found, 2 * len(data))
    return found


def dispatch_properties_of(properties: dict[str, str]) -> DispatchProperties:
    """Return the properties that dispatch needs, from a parsed dict."""
    values = [properties.get(name) for name in _NAMES]
    return DispatchProperties._make([tags_code_of(values[0]), *values, not any(values[1:])])


_read: Callable[[bytes], DispatchProperties] = _properties.PropertyNames(
    _NAMES, DispatchProperties
).decode
