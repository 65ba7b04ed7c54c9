"""What a broker's metadata says of topics, for layers below the one that reads it.

Readers are found by entry point (``cqstore.topics``): a function that takes the folder ``config``.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from cqstore.store.entry_points import entries
from cqstore.store.whole_import import load_whole

_GROUP = "cqstore.topics"


class TopicTable(NamedTuple):
    """The topics that a broker knows."""

    form: str
    """In which its metadata keeps them, see ``cqstore.broker.metadata.model.Form``."""
    topics: Mapping[str, dict[str, object]]
    """Name → configuration."""


Reader = Callable[[Path], TopicTable | None]


def topic_table(config: Path) -> TopicTable | None:
    """Return the topics of the broker whose folder is ``config``; ``None``: none are kept there.

    Raises:
        CorruptionError, StoreIOError: they are kept and cannot be read as a whole. A caller that
        deletes or
            names what is missing there must not go on.
    """
    for entry in entries(_GROUP):
        read: Reader = load_whole(entry)
        if (found := read(config)) is not None:
            return found
    return None
