"""TraceOutput: a new trace file that receives whole lines and never exceeds its maximum size."""

import os
from collections.abc import Sequence
from pathlib import Path

from cqstore.store.errors import StoreConfigError, os_errors
from cqstore.store.files import open_regular, write_all


class TraceOutput:
    """A trace file that is being written. One thread at a time may call any method."""

    def __init__(self, path: Path, max_bytes: int, first: bytes, reserved: int = 0) -> None:
        """Create the file ``path``; ``first`` is written before the first lines.

        ``reserved`` bytes are kept free for a last line.

        Raises:
            StoreConfigError: the file already exists, or ``max_bytes`` is too small.
            StoreIOError: the file cannot be created.
        """
        if max_bytes < len(first) + reserved:
            raise StoreConfigError(
                f"max_bytes {max_bytes} is too small for a trace: expected at least"
                f" {len(first) + reserved}"
            )
        self.path = path
        with os_errors("create the trace", path):
            try:
                self._fd = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            except FileExistsError as exc:
                raise StoreConfigError(
                    "cannot create the trace: the file already exists", path=path
                ) from exc
        self.operations = 0
        """Number of operations written, one line each."""
        self.total_bytes = 0
        self.full = False
        """Whether a line did not fit; that line and all later lines are not written."""
        self._first = first
        self._max_bytes = max_bytes - reserved

    def write(self, lines: Sequence[bytes]) -> int:
        """Write lines until one does not fit; return the number of lines that were written.

        Raises:
            StoreIOError: the file cannot be written.
        """
        first = b"" if self.total_bytes else self._first
        size, count = self.total_bytes + len(first), 0
        if not self.full:
            for line in lines:
                size += len(line)
                if size > self._max_bytes:
                    self.full = True
                    break
                count += 1
        self._append(b"".join([first, *lines[:count]]))
        self.operations += count
        return count

    def end(self, last: bytes) -> None:
        """Write the last line, for which room was reserved.

        Raises:
            StoreIOError: the file cannot be written.
        """
        self._append(last if self.total_bytes else self._first + last)

    def close(self) -> None:
        """Remove a line that was written in part, make the file durable and close it.

        A second call does nothing.

        Raises:
            OSError: the file cannot be synced; it is closed.
        """
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            os.ftruncate(fd, self.total_bytes)
            os.fsync(fd)
        finally:
            os.close(fd)

    def _append(self, data: bytes) -> None:
        with os_errors("write the trace", self.path):
            write_all(self._fd, data, self.total_bytes)
        self.total_bytes += len(data)
