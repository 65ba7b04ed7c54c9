"""Whether a quiescent store was changed since: names, sizes and times of its files.

No byte of a queue is read, so a million queue files are looked at in the time that a thousand take
to be compared.
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
    """Return what shows whether the store was changed since; see ``is_as_told``.

    Empty while the store is open, or after a crash: a process that has a file mapped may write to
    it without a trace in the file's times. Also where a link leads elsewhere.

    Raises:
        StoreIOError: the files cannot be listed.
    """
    found = list(_digests(paths, source, log_folders))
    # Asked last: a process that closed the store before has written what is going to be compared.
    return _BETWEEN.join(found) if all(found) and is_at_rest(paths) else ""


def is_as_told(told: str, paths: StorePaths, source: str, log_folders: Iterable[Path]) -> bool:
    """Return whether ``told``, by ``at_rest``, still holds; the queues are looked at last.

    Raises:
        StoreIOError: the files cannot be listed.
    """
    wanted = told.split(_BETWEEN)
    found = _digests(paths, source, log_folders)
    return all(wanted) and all(each == want for each, want in zip_longest(found, wanted))


def is_at_rest(paths: StorePaths) -> bool:
    """Return whether the store is not open, and was closed by the last process that had it open.

    Raises:
        StoreIOError: that cannot be read.
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
