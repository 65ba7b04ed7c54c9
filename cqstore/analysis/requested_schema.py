"""Column types that the consumer of a stream requests, and which of them are granted.

Source: Arrow's PyCapsule interface, "Schema Requests": a request is for another representation of
the same data, never for other data, and may be declined.
"""

from typing import Any

import pyarrow as pa
from pyarrow import types

from cqstore.store.errors import StoreConfigError

_KINDS = (
    {"string", "large_string", "string_view"},
    {"binary", "large_binary", "binary_view"},
)


class _Capsule:
    """A schema's capsule as pyarrow takes schemas."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __arrow_c_schema__(self) -> object:
        return self._capsule


def granted(own: pa.Schema, capsule: object) -> pa.Schema:
    """Return the requested schema, or ``own`` if a column cannot be represented in it.

    Raises:
        StoreConfigError: the request has other columns.
    """
    wanted = pa.schema(_Capsule(capsule))
    if wanted.names != own.names:
        raise StoreConfigError(
            f"wrong columns in the requested schema: expected {', '.join(own.names)}, found"
            f" {', '.join(wanted.names)}"
        )
    if not all(_holds(one.type, other.type) for one, other in zip(wanted, own, strict=True)):
        return own
    try:
        own.empty_table().cast(wanted)
    except (pa.ArrowException, ValueError):  # this version cannot, or nulls are not allowed
        return own
    return wanted


def _holds(wanted: Any, own: Any) -> bool:
    """Return whether every value of type ``own`` is the same value in type ``wanted``."""
    if wanted == own:
        return True
    if types.is_integer(wanted) and types.is_integer(own):
        return bool(types.is_signed_integer(wanted) and wanted.bit_width >= own.bit_width)
    if types.is_timestamp(wanted) and types.is_timestamp(own):
        return bool(wanted.tz == own.tz and _PRECISION[wanted.unit] >= _PRECISION[own.unit])
    return any({str(wanted), str(own)} <= kind for kind in _KINDS)


_PRECISION = {"s": 0, "ms": 3, "us": 6, "ns": 9}
