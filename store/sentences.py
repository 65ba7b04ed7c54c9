"""Parts of sentences that several messages share."""

from collections.abc import Sequence

REOPEN = "Close the store and open it again"
"""What to do after a failed write or flush."""


def some_of(shown: Sequence[str], total: int, between: str = ", ") -> str:
    """Return the ``shown`` ones of ``total`` things, and how many more there are."""
    more = total - len(shown)
    text = between.join(shown)
    return f"{text}{between.removeprefix(',')}and {more} more" if more > 0 else text
