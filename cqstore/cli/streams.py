"""Standard streams of a command: a failed write raises one kind of error in any nested call."""

import errno
import io
import os
import select
import sys
import threading
from typing import Any, BinaryIO, TextIO, cast

from cqstore.store.errors import StoreConfigError, StoreError


class OutputError(StoreError):
    """Standard output cannot be written, so the output is incomplete.

    Not an ``OSError``, which a handler around a print would treat as an error of the store.
    """

    exit_code = 2


class ReaderGoneError(OutputError):
    """Standard output was closed by its reader, such as ``head``: not reported as an error."""

    exit_code = 128 + 13
    """Exit code that a shell reports for a process ended by SIGPIPE."""


class _RawOutput(io.FileIO):
    """A file descriptor that discards all data after its first error or interrupt."""

    failed = False

    def write(self, data: Any) -> int:
        """Write as much as the kernel accepts; wait if the terminal is non-blocking and full."""
        if self.failed:
            return len(data)
        try:
            while (written := super().write(data)) is None:
                select.select([], [self], [])
        except OSError as exc:
            self.failed = True
            return self.on_error(exc, len(data))
        except BaseException:  # raised by a signal: it is unknown whether the data was written
            self.failed = True
            raise
        return written

    def on_error(self, exc: OSError, size: int) -> int:
        """Raise the error for a failed write of ``size`` bytes.

        Raises:
            ReaderGoneError: standard output was closed by its reader.
            OutputError: the system refused the bytes.
        """
        if exc.errno == errno.EPIPE:
            raise ReaderGoneError("standard output was closed by its reader") from exc
        reason = f"cannot write to standard output: {exc.strerror or exc}; the output is truncated"
        raise OutputError(reason) from exc


class _RawNotes(_RawOutput):
    """Standard error: a failed write is dropped, because it cannot be reported anywhere."""

    def on_error(self, exc: OSError, size: int) -> int:
        """Drop the data and count it as written."""
        _ = exc
        return size


class StatusLine:
    """The last line of a terminal, rewritten in place; other output appears above it.

    Any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # guards all fields
        self._stream: TextIO | None = None  # the stream that shows the line
        self._busy = self._held = False

    def show(self, stream: TextIO, text: str) -> None:
        """Write the line, unless the last printed text has no line end yet."""
        with self._lock:
            if not self._held:
                self._stream = stream
                self._put(f"\r{text}{_TO_THE_END}")

    def clear(self) -> None:
        """Remove the line from the terminal."""
        with self._lock:
            if self._stream is not None:
                self._put(f"\r{_TO_THE_END}")
                self._stream = None

    def make_room(self, text: str) -> None:
        """Remove the line before ``text`` is printed on the same terminal."""
        with self._lock:
            if text and not self._busy:  # while busy, the text is the line itself
                self.clear()
                self._held = not text.endswith("\n")

    def _put(self, text: str) -> None:
        """Write to the terminal; ``_busy`` keeps signal handlers from writing meanwhile."""
        assert self._stream is not None
        self._busy = True
        try:
            self._stream.write(text)
            self._stream.flush()
        finally:
            self._busy = False


_TO_THE_END = "\x1b[K"
"""Terminal sequence that erases from the cursor to the end of the line."""
STATUS = StatusLine()


class _TextNotes(io.TextIOWrapper):
    """Text stream of standard error."""

    def write(self, text: str) -> int:
        """Write ``text``; on a terminal, above the status line."""
        if self.isatty():
            STATUS.make_room(text)
        return super().write(text)


class _TextOutput(io.TextIOWrapper):
    """Text stream of standard output."""

    def write(self, text: str) -> int:
        """Write ``text``; on a terminal, above the status line.

        Raises:
            OutputError: the encoding does not support a character of ``text``.
        """
        if self.line_buffering:  # a terminal
            STATUS.make_room(text)
        try:
            return super().write(text)
        except UnicodeEncodeError as exc:
            lacking = text[exc.start].encode("unicode_escape").decode()
            raise OutputError(
                f"cannot write {lacking} to standard output: its encoding is {self.encoding}; the"
                " output is truncated (set PYTHONIOENCODING=utf-8)"
            ) from exc


def guard_streams() -> None:
    """Replace ``sys.stdout`` and ``sys.stderr`` by streams that raise the errors of this module.

    Closed descriptors below 3 are opened. Otherwise, the next file of a store would get that
    number, and the output of a library would be written to it.

    Raises:
        OutputError: standard output is closed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:  # closed: print() would use standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - open until exit
    elif _is_a_file(sys.stderr):
        sys.stderr = _TextNotes(
            io.BufferedWriter(_RawNotes(sys.stderr.fileno(), "w", closefd=False)),
            sys.stderr.encoding, "backslashreplace", line_buffering=True,
        )  # fmt: skip
    if sys.stdout is None:
        raise OutputError("standard output is closed")
    if not _is_a_file(sys.stdout):  # replaced by a caller in this process
        return
    sys.stdout = _TextOutput(
        io.BufferedWriter(_RawOutput(sys.stdout.fileno(), "w", closefd=False)),
        sys.stdout.encoding, sys.stdout.errors, line_buffering=sys.stdout.isatty(),
    )  # fmt: skip


def _is_a_file(stream: TextIO) -> bool:
    try:
        stream.fileno()
    except (OSError, ValueError):
        return False
    return True


def standard_input() -> BinaryIO:
    """Return the bytes of standard input.

    Raises:
        StoreConfigError: standard input is closed.
    """
    if sys.stdin is None:
        raise StoreConfigError("standard input is closed")
    return cast("BinaryIO", sys.stdin.buffer)
