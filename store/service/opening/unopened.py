"""The mark of a log that was copied here and has not been opened yet.

If such a log is damaged, it was damaged when it was copied: no writer was killed. An opening that
is killed leaves ``abort`` as a writer does, and damage would then be cut off as a torn end. So the
next opening starts over like the first one.
"""

import shutil
from pathlib import Path

from cqstore.store.errors import os_errors
from cqstore.store.files import make_folder, remove_file, replace_file, sync_folder
from cqstore.store.path_kind import exists, is_dir, is_symlink
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import queue_folders


def mark_unopened(paths: StorePaths) -> None:
    """Record durably that the log to be copied has not been opened.

    Raises:
        StoreIOError: the mark cannot be written.
    """
    with os_errors("mark the log as not opened yet", paths.unopened):
        make_folder(paths.own)
        replace_file(paths.unopened, b"")


def begin_again(paths: StorePaths) -> None:
    """Remove the files of unfinished openings; under the store's lock.

    ``abort`` is removed last: after an interruption this is repeated.

    Raises:
        StoreIOError: a file cannot be removed.
    """
    if not (exists(paths.unopened) and exists(paths.abort)):
        return
    with os_errors("restart an interrupted open", paths.root):
        kept = {paths.unopened, paths.cut, paths.cutting}
        made = [path for path in paths.own.iterdir() if path not in kept]
        for path in (*queue_folders(paths), paths.index, paths.checkpoint, *made):
            _remove(path)
        sync_folder(paths.root)
        remove_file(paths.abort)


def _remove(path: Path) -> None:
    if is_dir(path) and not is_symlink(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def opened(paths: StorePaths) -> None:
    """Remove the mark: the log is complete and its queues are built.

    Raises:
        StoreIOError: the mark cannot be removed.
    """
    if exists(paths.unopened):
        with os_errors("remove the mark that the log is not opened yet", paths.unopened):
            remove_file(paths.unopened)
