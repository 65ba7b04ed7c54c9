"""The first and the last line of a recording, which are no operations."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

KILLED = "The trace has no last line: its recording was killed, and its last seconds are missing."


class _Mark(BaseModel):
    """A line of a trace that is no operation; it has a field ``trace``."""

    model_config = ConfigDict(extra="forbid")


class FirstLine(_Mark):
    """The first line of a recording; files of other programs have none."""

    trace: Literal["recorded"]
    time: int
    source: Literal["master"] | None = None
    """``None``: a store recorded its own operations."""


class LastLine(_Mark):
    """The last line of a recording of a broker."""

    trace: Literal["end"]
    at: float = Field(ge=0, allow_inf_nan=False)
    missing: list[str]
    """Sentences about what the recording lacks."""


def missing_of(first: FirstLine | None, last: LastLine | None) -> Sequence[str]:
    """Return sentences about what a recording lacks."""
    if last is not None:
        return last.missing
    return (KILLED,) if first is not None and first.source else ()
