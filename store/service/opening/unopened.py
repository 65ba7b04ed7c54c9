"""The mark of a log that was copied here and that was not opened yet.

Where such a log is damaged it came so: no writer was killed in the middle of it. An opening that is
killed leaves ``abort`` as a writer does, and damage would be cut off as a torn end then. So the
next one begins again as the first one did.
"""

import shutil
from pathlib import Path

from cqstore.store.errors import os_errors
from cqstore.store.files import make_folder, remove_file, replace_file, sync_folder
from cqstore.store.path_kind import exists, is_dir, is_symlink
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import queue_folders


def mark_unopened(paths: StorePaths) -> None:
    """Note durably that the log that comes now has not been opened.

    Raises:
        StoreIOError: it cannot be written.
    """
    with os_errors("mark the log as not opened yet", paths.unopened):
        make_folder(paths.own)
        replace_file(paths.unopened, b"")


def begin_again(paths: StorePaths) -> None:
    """Take away what openings have made that came to no end; under the store's lock.

    ``abort`` goes last: if this is cut short it is done again.

    Raises:
        StoreIOError: something cannot be removed.
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
    """Take the mark away: the log is whole and its queues are built.

    Raises:
        StoreIOError: it cannot be removed.
    """
    if exists(paths.unopened):
        with os_errors("remove the mark that the log is not opened yet", paths.unopened):
            remove_file(paths.unopened)
