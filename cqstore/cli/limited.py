"""Limited answers: report that rows were left out, and how to get them."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from cqstore.cli.options import note

if TYPE_CHECKING:
    from cqstore.store.service.results import QueryMessageResult

T = TypeVar("T")


class BoundedAnswer:
    """An answer with a limit; a note and the last JSON row report that rows were left out.

    For the last row pass ``has_more`` to ``Output.rows`` or ``MessageOutput.messages``.
    """

    def __init__(self) -> None:
        self._has_more = False

    def has_more(self) -> bool:
        """Return whether rows were left out of the part of the answer read so far."""
        return self._has_more

    def limited(self, rows: Iterable[T], limit: int | None, what: str, option: str) -> Iterator[T]:
        """Yield at most ``limit`` of ``rows`` (0 or ``None``: all); report whether there are more.

        ``what`` names the rows, and ``option`` the option that sets the limit. One more row is
        read.
        """
        for number, row in enumerate(rows):
            if limit and number == limit:
                self.note_more(limit, what, option)
                return
            yield row

    def note_more(self, limit: int, what: str, option: str) -> None:
        """Report that there are more rows than the ``limit`` that were shown."""
        self.note(f"only the first {limit} {what} are shown: there are more ({option})")

    def note_older(self, found: "QueryMessageResult", option: str) -> None:
        """Report it if there are older messages with the key than those ``found``."""
        if found.has_more:
            self.note(
                f"only the newest {len(found)} messages are shown: there are older ones ({option})"
            )

    def note(self, sentence: str) -> None:
        """Report with ``sentence`` that rows are left out."""
        self._has_more = True
        note(sentence)
