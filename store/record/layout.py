"""Fixed-width records, each declared once.

A record is a ``NamedTuple`` whose annotations carry the width and the meaning of every field. The
``struct`` format, the numpy type, the field offsets and the table in ``docs/format.md`` all are
derived from this declaration; a test compares the page with it. Integers are big-endian and signed,
as Java's are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Annotated, Generic, NamedTuple, TypeVar, get_type_hints

import numpy as np

R = TypeVar("R", bound=NamedTuple)
Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Wire:
    """How one field of a layout is stored."""

    code: str
    """``struct`` code of the field, without byte order."""
    doc: str
    """What the number means, with its unit."""


class Layout(Generic[R]):
    """The byte layout of one fixed-width record.

    ``struct`` is public: a scan loop that a benchmark shows to be hot may use it directly.
    """

    def __init__(self, record: type[R]) -> None:
        hints = get_type_hints(record, include_extras=True)
        self.record = record
        self.wires: list[tuple[str, Wire]] = [
            (name, hint.__metadata__[0]) for name, hint in hints.items()
        ]
        self.struct = Struct(">" + "".join(wire.code for _, wire in self.wires))
        self.size = self.struct.size
        self.dtype: np.dtype[np.void] = np.dtype(
            [(name, _numpy_type(wire.code)) for name, wire in self.wires]
        )
        """The packed record as a numpy row, one column per field; ``dtype[[...]]`` selects some."""

    def offset(self, field: str) -> int:
        """Return where ``field`` starts, in bytes from the start of the record."""
        names = [name for name, _ in self.wires]
        codes = "".join(wire.code for _, wire in self.wires[: names.index(field)])
        return Struct(">" + codes).size

    def pack(self, record: R) -> bytes:
        """Return the ``size`` bytes of ``record``."""
        return self.struct.pack(*record)

    def unpack_from(self, data: Buffer, offset: int = 0) -> R:
        """Read the record that starts ``offset`` bytes into ``data``.

        Raises:
            struct.error: fewer than ``size`` bytes are left; callers check spans first.
        """
        return self.record._make(self.struct.unpack_from(data, offset))

    def iter_unpack(self, data: Buffer) -> Iterator[R]:
        """Read records back to back; ``len(data)`` must be a multiple of ``size``."""
        return map(self.record._make, self.struct.iter_unpack(data))

    def table(self) -> str:
        """Return the Markdown table that ``docs/format.md`` shows for this record."""
        lines = ["| offset | bytes | field | meaning |", "| ---: | ---: | --- | --- |"]
        offset = 0
        for name, wire in self.wires:
            width = Struct(">" + wire.code).size
            lines.append(f"| {offset} | {width} | `{name}` | {wire.doc} |")
            offset += width
        lines.append(f"| | **{offset}** | | |")
        return "\n".join(lines)


def _numpy_type(code: str) -> str:
    size = Struct(">" + code).size
    return f"V{size}" if code.endswith("s") else f">i{size}"


__all__ = ["Annotated", "Buffer", "Layout", "NamedTuple", "Wire"]
