"""A digest of a folder: to show that a command changed no byte."""

import hashlib
from pathlib import Path


def tree_digest(root: Path, but: Path | None = None) -> str:
    """Return a digest over names, kinds, modes, sizes, times of change and bytes below ``root``.

    What lies in ``but`` does not count.
    """
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if but in path.parents:
            continue
        status = path.lstat()
        # What a folder's own size says, a file system has for itself; its names are here anyway.
        size, changed = (0, 0) if path.is_dir() else (status.st_size, status.st_mtime_ns)
        facts = (path.relative_to(root), status.st_mode, size, changed)
        digest.update(repr(facts).encode("utf-8", "surrogatepass"))
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()
