"""The topics in a broker's metadata, for layers below the one that reads it.

Entry points provide the readers (``cqstore.topics``): functions that take the folder ``config``.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from cqstore.store.entry_points import entries
from cqstore.store.whole_import import load_whole

_GROUP = "cqstore.topics"


class TopicTable(NamedTuple):
    """The topics in a broker's metadata."""

    form: str
    """Form of the metadata, see ``cqstore.broker.metadata.model.Form``."""
    topics: Mapping[str, dict[str, object]]
    """Name → configuration."""


Reader = Callable[[Path], TopicTable | None]


def topic_table(config: Path) -> TopicTable | None:
    """Return the topics of the broker whose folder is ``config``; ``None``: it has no topic table.

    Raises:
        CorruptionError, StoreIOError: the table cannot be read completely. A caller that deletes or
            names missing topics must not continue.
    """
    for entry in entries(_GROUP):
        read: Reader = load_whole(entry)
        if (found := read(config)) is not None:
            return found
    return None
