"""MessageOutput: prints messages according to ``--output`` or ``--format``."""

import sys
from collections.abc import Iterable

import typer

from cqstore.cli.message_files.message_fields import ReadMessage, flat_fields, message_fields
from cqstore.cli.message_files.message_format import MessageFormat
from cqstore.cli.output import HasMore, RowFormat, output

ENDLESS = (RowFormat.JSONL, RowFormat.CSV)
"""Formats that can print an endless series of messages."""


class MessageOutput:
    """Prints messages on standard output."""

    def __init__(self, kind: RowFormat, pattern: str | None, *, endless: bool = False) -> None:
        """Check the options before anything is read.

        Raises:
            typer.BadParameter: the pattern has an unknown field or cannot be combined with
                ``kind``, or ``kind`` cannot print ``endless`` output.
        """
        self._kind, self._pattern = kind, None
        if pattern is not None:
            if kind is not RowFormat.JSONL:
                raise typer.BadParameter(f"--output {kind.value} cannot be combined with --format")
            self._kind, self._pattern = _form_of(pattern)
        if endless and self._kind not in ENDLESS:
            raise typer.BadParameter(f"format {self._kind.value} is not supported with --follow")

    def messages(self, reads: Iterable[ReadMessage], has_more: HasMore | None = None) -> int:
        """Print ``reads`` as they arrive; return how many there were.

        For ``has_more`` see ``Output.rows``; a line pattern has no such field.
        """
        if self._pattern is None:
            fields = flat_fields if self._kind is RowFormat.CSV else message_fields
            return output(self._kind).rows(map(fields, reads), has_more)
        count = 0
        for count, read in enumerate(reads, 1):  # noqa: B007 - the count is returned
            sys.stdout.write(self._pattern.line(read))
        return count


def _form_of(text: str) -> tuple[RowFormat, MessageFormat | None]:
    """Return the output format that ``--format`` names, or its line pattern.

    Raises:
        typer.BadParameter: the text is neither a known format nor a pattern.
    """
    if "%" in text:
        return RowFormat.JSONL, MessageFormat(text)
    try:
        return RowFormat(text), None
    except ValueError as exc:
        known = ", ".join(each.value for each in RowFormat)
        raise typer.BadParameter(
            f"invalid format {text!r}: expected {known}, or a line pattern with %t, %b ...",
            param_hint="--format",
        ) from exc
