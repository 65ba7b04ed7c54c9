"""IndexFaults: the unusable parts of an index; a reader records them, a writer refuses them.

A writer replaces such an index by one that is rebuilt from the log. A reader ignores the file, and
each query by key reports that the answer may be incomplete.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from cqstore.store.errors import CorruptionError, TruncatedRecordError, os_errors
from cqstore.store.index.geometry import is_blank
from cqstore.store.index.index_check import IndexFinding, check_header, unreadable
from cqstore.store.index.index_file import IndexFile
from cqstore.store.path_kind import exists


class IndexFaults:
    """The faults of the index in ``folder``. One thread."""

    def __init__(self, folder: Path, *, read_only: bool) -> None:
        self._folder = folder
        self._read_only = read_only
        self.ignored: list[IndexFinding] = []
        """Files that are not index files, as ``check`` reports them."""
        self.unread: list[IndexFinding] = []
        """Read-only: index files that were left out; their keys are not found."""

    @property
    def error(self) -> CorruptionError | None:
        """Return why a query may miss messages; ``None``: the index is complete."""
        if not self.unread:
            return None
        first, more = self.unread[0], len(self.unread) - 1
        others = f"; {more} more files cannot be read" if more else ""
        problem = f"the index is incomplete: {first.problem}{others}"
        return CorruptionError(problem, path=Path(first.path), position=first.position)

    def odd(self, path: Path, fault: CorruptionError, *, last: bool = False) -> None:
        """Record a file that cannot be used; read-write, remove an empty last file.

        Raises:
            CorruptionError: ``fault``, read-write and for any other file.
        """
        if self._read_only:
            self.unread.append(unreadable(fault, path))
        elif last and path.stat().st_size == 0:
            with os_errors("remove an empty index file", path):
                path.unlink()
        else:
            raise fault

    def with_sound_headers(self, files: Iterable[IndexFile]) -> Iterator[IndexFile]:
        """Yield the files whose header matches their entries.

        Raises:
            CorruptionError: read-write, the header of a file does not match.
        """
        for file in files:
            finding = next(check_header(file), None)
            if finding is None:
                yield file
                continue
            file.close()
            fault = CorruptionError(finding.problem, path=file.path, position=finding.position)
            self.odd(file.path, fault)

    def without_a_key(self, paths: Iterable[Path]) -> None:
        """Record files of ``paths`` whose header counts no keys although they have some."""
        for path in paths:
            if not is_blank(path):
                problem = "the header of the index file counts no entries, but the file has entries"
                self.odd(path, CorruptionError(problem, path=path))

    def check_complete(self, names: Iterable[str]) -> None:
        """Record index files that existed at the last clean stop and are missing.

        Raises:
            TruncatedRecordError: read-write, one of ``names`` is missing.
        """
        for name in names:
            path = self._folder / name
            if not exists(path):
                problem = "an index file that existed at the last clean stop is missing"
                self.odd(path, TruncatedRecordError(problem, path=path))
