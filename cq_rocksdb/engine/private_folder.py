"""PrivateFolder: a folder of links to a database's files, for opening it read-only.

RocksDB and its bindings write files into any folder that they open. So that a read-only open
changes no byte, they open a temporary folder that is removed afterwards.
"""

import os
import re
import shutil
import tempfile
import weakref
from pathlib import Path

from cqstore.store.broker_files.file_names import CURRENT
from cqstore.store.errors import os_errors
from cqstore.store.path_kind import exists

DATABASE_FILE = re.compile(
    r"CURRENT|IDENTITY|LOCK|LOG(\.old\..*)?|(MANIFEST|OPTIONS)-\d+|\d+\.(sst|log|blob|dbtmp)"
    r"|rocksdict-config\.json"
)
"""Names of the files that belong to a database; its folder may also contain file queues."""
_NOT_LINKED = re.compile(r"LOG.*|LOCK|rocksdict-config\.json")


class PrivateFolder:
    """Links to the database in ``folder``; removed by ``release`` or on garbage collection."""

    def __init__(self, folder: Path, *, is_empty: bool = False) -> None:
        """Create the links; with ``is_empty``, create none.

        Raises:
            StoreIOError: the folder cannot be created.
        """
        with os_errors("create a private folder for a read-only open of", folder):
            self.path = Path(tempfile.mkdtemp(prefix="cqstore-read-only-"))
            self.release = weakref.finalize(self, _remove, self.path, os.getpid())
            self.holds_database = not is_empty and exists(folder / CURRENT)
            """False: there is no database, and a database opened here is empty."""
            if not self.holds_database:
                return
            for file in folder.absolute().iterdir():
                name = file.name
                if DATABASE_FILE.fullmatch(name) and not _NOT_LINKED.fullmatch(name):
                    (self.path / name).symlink_to(file)


def _remove(folder: Path, made_by: int) -> None:
    """Remove the folder, unless this is a child of the process that created and may use it."""
    if os.getpid() == made_by:
        shutil.rmtree(folder, ignore_errors=True)
