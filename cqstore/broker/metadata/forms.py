"""Reader of all forms of metadata in a store's folder."""

from collections.abc import Callable
from pathlib import Path

from cqstore.broker.metadata.json_form import read_json
from cqstore.broker.metadata.model import BrokerMetadata
from cqstore.broker.metadata.rocksdb_v1 import read_single, read_v1
from cqstore.broker.metadata.rocksdb_v2 import read_v2
from cqstore.store.paths import StorePaths

_READERS: tuple[Callable[[Path], BrokerMetadata | None], ...] = (
    read_json, read_v1, read_single, read_v2,
)  # fmt: skip


NO_METADATA = "no broker metadata found"


def read_forms(paths: StorePaths) -> list[BrokerMetadata]:
    """Return the content of each existing form. Read-only, takes no lock.

    Unreadable parts are in the ``faults`` of their form. A running broker may change the metadata
    at any time.
    """
    config = paths.config
    return [found for read in _READERS if (found := read(config)) is not None]
