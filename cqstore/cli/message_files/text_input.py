"""Text input that another program may have written, for verbs that read lines or CSV.

The input is a file, a pipe or standard input (``-``), and may be compressed with gzip or Zstandard.
A UTF-8 byte-order mark, as written by spreadsheets and Windows, is dropped; UTF-16 and UTF-32 are
refused.
"""

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from cqstore.cli.streams import standard_input
from cqstore.store.errors import (
    CorruptionError,
    RefusedStoreError,
    UnsupportedFormatError,
    os_errors,
)
from cqstore.store.files import reading
from cqstore.store.path_kind import exists, is_dir, is_file

STDIN = Path("-")
COMPRESSED_SUFFIXES = {".gz", ".zst"}
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
_HEAD_BYTES = 4
"""At least the longest byte-order mark, and enough to detect UTF-16 without a mark."""
_ZSTD_PIECE = 1024
"""Input bytes per step; they decompress to at most 44 MB (3 bytes can yield 128 KiB)."""


def is_stream(path: Path) -> bool:
    """Return whether ``path`` is a pipe, terminal or standard input: readable only once."""
    return path == STDIN or (exists(path) and not is_file(path) and not is_dir(path))


@contextmanager
def text_input(path: Path) -> Iterator[BinaryIO]:
    """Open UTF-8 text; each line can be read as soon as it arrives.

    Raises:
        RefusedStoreError: there is no such file, or it is a folder.
        UnsupportedFormatError: the input is UTF-16 or UTF-32.
        CorruptionError: the compressed input is damaged or truncated; reads raise this too.
        StoreConfigError: standard input is closed.
        StoreIOError: the input cannot be read; reads in the block raise this too.
    """
    with os_errors("read", path), ExitStack() as stack:
        if path == STDIN:
            file = standard_input()
        elif not exists(path):
            raise RefusedStoreError("no such file", path=path)
        elif is_dir(path):
            raise RefusedStoreError("the path is a folder, not a file", path=path)
        elif is_file(path):
            file = stack.enter_context(reading(path))
        else:
            file = stack.enter_context(path.open("rb"))
        yield text_reader(file, path)


def text_reader(file: BinaryIO, path: Path) -> BinaryIO:
    """Return a reader of the text in ``file`` from its position on; see ``text_input``."""
    head = file.read(_HEAD_BYTES)
    if head.startswith(_GZIP):
        unzipped = gzip.GzipFile(fileobj=_joined(head, file))
        file = _buffered(_guarded(unzipped.read1, "gzip", path))
        head = file.read(_HEAD_BYTES)
    elif head.startswith(_ZSTD):
        pieces = _zstd_pieces(_joined(head, file))
        file = _buffered(_guarded(lambda _: next(pieces, b""), "Zstandard", path))
        head = file.read(_HEAD_BYTES)
    if head.startswith(_WIDE_MARKS) or b"\0" in head[:2]:
        raise UnsupportedFormatError(
            "the input is UTF-16 or UTF-32, expected UTF-8. Convert it first:"
            f" iconv -f UTF-16 -t UTF-8 {path} > NEW",
            path=path,
        )
    return _joined(head.removeprefix(codecs.BOM_UTF8), file)


class _Pieces(io.RawIOBase):
    """Stream over the bytes that a function returns; empty bytes mean the end."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read, self._rest = read, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._rest or self._read(len(buffer))
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        self._rest = data[count:]
        return count


def _buffered(read: Callable[[int], bytes]) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(_Pieces(read), 1 << 16))


def _joined(head: bytes, file: BinaryIO) -> BinaryIO:
    """Return a reader of ``head`` followed by the rest of ``file``."""
    rest = [head] if head else []
    read = cast("io.BufferedReader", file).read1
    return _buffered(lambda size: rest.pop() if rest else read(size))


def _guarded(read: Callable[[int], bytes], kind: str, path: Path) -> Callable[[int], bytes]:
    """Return ``read`` with errors about damaged data converted to ``CorruptionError``."""

    def guarded(size: int) -> bytes:
        try:
            return read(size)
        except (gzip.BadGzipFile, zlib.error, EOFError, zstandard.ZstdError) as exc:
            raise CorruptionError(
                "the compressed file is damaged or truncated", path=path,
                expected=f"complete {kind} data", got=str(exc),
            ) from exc  # fmt: skip

    return guarded


def _zstd_pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield the decompressed content of the frames of ``file``.

    Raises:
        EOFError: the last frame is truncated, which ``zstandard``'s reader treats as the end.
        zstandard.ZstdError: a frame is damaged.
    """
    made, rest, begun = zstandard.ZstdDecompressor(), b"", False
    frame = made.decompressobj()
    while data := rest or cast("io.BufferedReader", file).read1(_ZSTD_PIECE):
        begun = True
        if piece := frame.decompress(data):
            yield piece
        rest = b""
        if frame.eof:
            rest, begun, frame = frame.unused_data, False, made.decompressobj()
    if begun:
        raise EOFError("the last frame is incomplete")
