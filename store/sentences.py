"""How sentences name some of many things."""

from collections.abc import Sequence


def some_of(shown: Sequence[str], total: int, between: str = ", ") -> str:
    """Return what is shown of ``total`` things, and how many more there are."""
    more = total - len(shown)
    text = between.join(shown)
    return f"{text}{between.removeprefix(',')}and {more} more" if more > 0 else text
