"""Detect changes of a closed store by names, sizes and times of its files.

No queue is read, so checking a million queue files takes as long as comparing a thousand.
"""

import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path

from cqstore.store.comparing.file_facts import add_facts
from cqstore.store.errors import os_errors
from cqstore.store.journals.store_lock import lock_stamp, locked_by
from cqstore.store.path_kind import exists, is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend

_DIGEST_BYTES = 16
_BETWEEN = "-"


def at_rest(paths: StorePaths, source: str, log_folders: Iterable[Path]) -> str:
    """Return digests that show later whether the store was changed; see ``is_unchanged``.

    Empty while the store is open or after a crash, because a process that has mapped a file may
    write to it without a change of its times. Also empty if a symbolic link is found.

    Raises:
        StoreIOError: the files cannot be listed.
    """
    found = list(_digests(paths, source, log_folders))
    # Checked last: a process that has closed the store before has written everything.
    return _BETWEEN.join(found) if all(found) and is_at_rest(paths) else ""


def is_unchanged(digests: str, paths: StorePaths, source: str, log_folders: Iterable[Path]) -> bool:
    """Return whether ``digests``, a result of ``at_rest``, is still true; queues are checked last.

    Raises:
        StoreIOError: the files cannot be listed.
    """
    wanted = digests.split(_BETWEEN)
    found = _digests(paths, source, log_folders)
    return all(wanted) and all(each == want for each, want in zip_longest(found, wanted))


def is_at_rest(paths: StorePaths) -> bool:
    """Return whether the store is closed, and was closed cleanly.

    Raises:
        StoreIOError: a file cannot be read.
    """
    return not (exists(paths.abort) or locked_by(paths))


def _digests(paths: StorePaths, source: str, log_folders: Iterable[Path]) -> Iterator[str]:
    """Yield two digests of names, sizes, inodes and times: all that queues of ``source`` rest on.

    First the log, our journals, and ``lock``, which RocketMQ writes whenever it starts; then the
    files of the queues. Empty where a link leads elsewhere.
    """
    stamp = b"%d" % lock_stamp(paths)
    yield _digest(paths, stamp, (*log_folders, paths.own))
    yield _digest(paths, stamp, backend(source).folders(paths))


def _digest(paths: StorePaths, stamp: bytes, folders: Iterable[Path]) -> str:
    """Return a digest of names, sizes and times of files; empty: they cannot all be looked at."""
    digest = blake2b(stamp, digest_size=_DIGEST_BYTES)
    whole = True
    with os_errors("list the files of the store", paths.root):
        for folder in folders:
            digest.update(b"//" + os.fsencode(folder) + b"\0")
            if is_dir(folder):
                whole &= add_facts(digest, folder, below=folder != paths.own)
    return digest.hexdigest() if whole else ""
