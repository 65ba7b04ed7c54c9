"""What tells whether a store at rest was changed since: names, sizes and times of its files.

No byte of a queue is read, so a million queue files are looked at in the time that a thousand take
to be compared.
"""

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from store.comparing.file_facts import add_facts
from store.errors import os_errors
from store.journals.store_lock import lock_stamp, locked_by
from store.paths import StorePaths
from store.queue.backends import backend

_DIGEST_BYTES = 16


def at_rest(paths: StorePaths, source: str, log_folders: Iterable[Path]) -> str:
    """Return the digest ``rest_digest``; empty while somebody has the store open, or since a crash.

    A process that has a file mapped may write to it without a trace in the file's times.

    Raises:
        StoreIOError: the files cannot be listed.
    """
    found = rest_digest(paths, source, log_folders)
    # Asked last: who closed the store before has written what the comparison is going to read.
    return found if is_at_rest(paths) else ""


def is_at_rest(paths: StorePaths) -> bool:
    """Return whether nobody has the store open, and whoever had it last has closed it.

    Raises:
        StoreIOError: that cannot be told.
    """
    return not (paths.abort.exists() or locked_by(paths))


def rest_digest(paths: StorePaths, source: str, log_folders: Iterable[Path]) -> str:
    """Return a digest of names, sizes, inodes and times of all that queues of ``source`` rest on.

    That is the files of its queues, of the log, of our journals, and ``lock``, which RocketMQ
    writes whenever it starts. Empty where a link leads elsewhere.

    Raises:
        StoreIOError: they cannot be listed.
    """
    digest = blake2b(digest_size=_DIGEST_BYTES)
    with os_errors("look at the files of the store", paths.root):
        digest.update(b"%d" % lock_stamp(paths))
        whole = True
        for folder in (*backend(source).folders(paths), *log_folders, paths.own):
            digest.update(b"//" + os.fsencode(folder) + b"\0")
            if folder.is_dir():
                whole &= add_facts(digest, folder, below=folder != paths.own)
    return digest.hexdigest() if whole else ""
