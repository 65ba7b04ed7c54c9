"""Compression and decompression of bodies, by the type bits of ``sys_flag``.

Source: RocketMQ ``CompressionType``, ``CompressorFactory``.
"""

import zlib

import lz4.frame
import zstandard

from cqstore.store.errors import CorruptionError, UnsupportedFormatError
from cqstore.store.record.message import COMPRESSION_SHIFT, CompressionType, SysFlag

_MAX_BODY = 256 << 20
"""Limit of a decompressed body: more than any body of 4 MiB needs; stops a decompression bomb."""
_UNENDED = f"the data is truncated, or longer than {_MAX_BODY} bytes when decompressed"
_PIECE = 1 << 20
_ZSTD_PIECE = 256
"""Bytes that give at most 11 MB: a block of 3 bytes decompresses to up to 128 KiB."""


def decompress(body: bytes, sys_flag: int, phy_offset: int | None = None) -> bytes:
    """Return ``body`` decompressed.

    Raises:
        UnsupportedFormatError: the compression type is unknown.
        CorruptionError: the stream is damaged or incomplete.
    """
    number = (sys_flag & SysFlag.COMPRESSION_TYPE) >> COMPRESSION_SHIFT
    try:
        kind = CompressionType(number)
    except ValueError as exc:
        raise UnsupportedFormatError(
            f"unknown compression type {number}", phy_offset=phy_offset
        ) from exc
    try:
        return _DECOMPRESS[kind](body)
    except (zlib.error, RuntimeError, EOFError, zstandard.ZstdError, ValueError) as exc:
        raise CorruptionError(
            f"cannot decompress the {kind.name} body: {exc}", phy_offset=phy_offset
        ) from exc


def compress(body: bytes, kind: CompressionType, level: int = 5) -> tuple[bytes, int]:
    """Return the compressed body and the ``sys_flag`` bits of the compression type."""
    bits = SysFlag.COMPRESSED | kind << COMPRESSION_SHIFT
    if kind is CompressionType.LZ4:
        packed: bytes = lz4.frame.compress(body, compression_level=level)
        return packed, int(bits)
    if kind is CompressionType.ZSTD:
        return zstandard.ZstdCompressor(level=level).compress(body), int(bits)
    return zlib.compress(body, level), int(bits)


def _zlib(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    decompressed = stream.decompress(body, _MAX_BODY)
    if not stream.eof:
        raise ValueError(_UNENDED)
    return decompressed


def _lz4(body: bytes) -> bytes:
    """Return the content of an LZ4 frame, at most ``_MAX_BODY`` bytes.

    Raises:
        ValueError: the frame is incomplete.
    """
    stream = lz4.frame.LZ4FrameDecompressor()
    decompressed = bytearray(
        stream.decompress(body, _PIECE)
    )  # it allocates the permitted size at once
    while not stream.eof and not stream.needs_input and len(decompressed) < _MAX_BODY:
        decompressed += stream.decompress(b"", _PIECE)
    if not stream.eof:
        raise ValueError(_UNENDED)
    return bytes(decompressed)


def _zstd(body: bytes) -> bytes:
    """Return the content of a Zstandard frame, at most ``_MAX_BODY`` bytes.

    Raises:
        ValueError: the frame is incomplete.
    """
    stream = zstandard.ZstdDecompressor(max_window_size=_MAX_BODY).decompressobj()
    decompressed = bytearray()
    for at in range(0, len(body), _ZSTD_PIECE):  # it has no output limit: the input must be small
        decompressed += stream.decompress(body[at : at + _ZSTD_PIECE])
        if stream.eof or len(decompressed) > _MAX_BODY:
            break
    if not stream.eof:
        raise ValueError(_UNENDED)
    return bytes(decompressed)


_DECOMPRESS = {
    CompressionType.UNNAMED: _zlib,
    CompressionType.ZLIB: _zlib,
    CompressionType.LZ4: _lz4,
    CompressionType.ZSTD: _zstd,
}
