"""Every form of metadata that a store's folder holds."""

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

    What cannot be read is among the ``faults`` of its form. A broker that runs may be about to
    change any of it.
    """
    config = paths.config
    return [found for read in _READERS if (found := read(config)) is not None]
