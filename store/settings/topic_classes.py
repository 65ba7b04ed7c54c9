"""Topic classes in settings: ``topics=value``, separated by semicolons; the first match counts."""

from collections.abc import Iterator


def classes_of(text: str | None) -> Iterator[tuple[str, str]]:
    """Yield topics and value of each class, in order; topics may contain ``=``."""
    for each in (text or "").split(";"):
        topics, _, value = each.rpartition("=")
        if each.strip():
            yield topics.strip(), value.strip()


def is_share(text: str) -> bool:
    """Return whether a value is a number from 0 to 1."""
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False
