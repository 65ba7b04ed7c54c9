"""MessageOutput: messages as ``--output`` or ``--format`` says, the same in every verb."""

import sys
from collections.abc import Iterable

import typer

from store.cli.message_fields import ReadMessage, flat_fields, message_fields
from store.cli.message_format import MessageFormat
from store.cli.output import RowFormat, output

ENDLESS = (RowFormat.JSONL, RowFormat.CSV)
"""What can be printed of messages that have no end."""


class MessageOutput:
    """Prints messages on standard output."""

    def __init__(self, kind: RowFormat, pattern: str | None, *, endless: bool = False) -> None:
        """Check what was asked for, before anything is read.

        Raises:
            typer.BadParameter: the pattern has a field that is none, or does not go with ``kind``;
                or ``kind`` is not printed before its end and is to be ``endless``.
        """
        self._kind = kind
        self._pattern = None if pattern is None else MessageFormat(pattern)
        if self._pattern is not None and kind is not RowFormat.JSONL:
            raise typer.BadParameter(f"--output {kind.value} says nothing beside --format")
        if endless and kind not in ENDLESS:
            raise typer.BadParameter(f"--output {kind.value} has an end, and --follow has none")

    def messages(self, reads: Iterable[ReadMessage]) -> int:
        """Print ``reads`` as they come; return how many there were."""
        if self._pattern is None:
            fields = flat_fields if self._kind is RowFormat.CSV else message_fields
            return output(self._kind).rows(map(fields, reads))
        count = 0
        for count, read in enumerate(reads, 1):  # noqa: B007 - it is returned
            sys.stdout.write(self._pattern.line(read))
        return count
