"""Folder in which replaced files of a broker's metadata are kept."""

import time
from pathlib import Path

from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths


def new_kept_folder(paths: StorePaths) -> Path:
    """Return the path of a new folder below ``cqstore/replaced``, without creating it."""
    stamp = time.strftime("%Y%m%dT%H%M%S-metadata", time.gmtime())
    folder, number = paths.replaced / stamp, 1
    while exists(folder):
        folder, number = paths.replaced / f"{stamp}-{number}", number + 1
    return folder
