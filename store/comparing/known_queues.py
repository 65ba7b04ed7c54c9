"""KnownQueues: queues whose files were compared, by what tells that they were not touched since.

A queue takes 16 bytes: a digest of its name and of its files' names, sizes, inodes and times. Who
finds the same digest again finds the same bytes.
"""

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from store.comparing.file_facts import add_facts
from store.errors import os_errors
from store.files import read_file, replace_file
from store.paths import StorePaths
from store.queue.backends import backend
from store.queue.places import QueuePlace
from store.queue.units import QueueKey

FACTS_BYTES = 16
_MOST_BYTES = 1 << 32


class QueueFacts:
    """Looks at the files of queues of one place. Nobody may have the store open meanwhile."""

    def __init__(self, place: QueuePlace) -> None:
        self._paths = StorePaths(place.root)
        self._kind = backend(place.backend)
        config = place.config
        # Other sizes make other units of the same files.
        sizes = config.units_per_file, config.mapped_file_size_consume_queue_ext
        self._sizes = b"%d %d" % sizes

    def digest(self, queue: QueueKey) -> bytes | None:
        """Return what tells these files from any others; ``None`` where they cannot tell.

        So it is with a link among them, and where the backend keeps no files a queue.

        Raises:
            StoreIOError: they cannot be listed.
        """
        folders = self._kind.folders_of_queue(self._paths, *queue)
        name = os.fsencode(f"{queue.queue_id}/{queue.topic}")
        digest = blake2b(self._sizes + b"\0" + name, digest_size=FACTS_BYTES)
        for folder in folders:
            digest.update(b"//")
            with os_errors("look at the files of a queue", folder):
                if folder.is_dir() and not add_facts(digest, folder, below=True):
                    return None
        return digest.digest() if folders else None


class KnownQueues:
    """The digests of many queues, sorted, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._known = frozenset(
            data[at : at + FACTS_BYTES] for at in range(0, len(data), FACTS_BYTES)
        )

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._known


def write_known(path: Path, digests: Iterable[bytes]) -> str:
    """Write them, durably; return a digest of all.

    Raises:
        StoreIOError: it cannot be written.
    """
    data = b"".join(sorted(digests))
    with os_errors("write what is known of the queues", path):
        replace_file(path, data)
    return blake2b(data, digest_size=FACTS_BYTES).hexdigest()


def read_known(path: Path, digest: str) -> bytes | None:
    """Return what was written with that ``digest``; ``None`` where it is not there any more.

    Raises:
        StoreIOError: it cannot be read.
    """
    if not path.exists():
        return None
    with os_errors("read what is known of the queues", path):
        data = read_file(path, _MOST_BYTES)
    return data if blake2b(data, digest_size=FACTS_BYTES).hexdigest() == digest else None
