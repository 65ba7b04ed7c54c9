"""Finds a RocksDB library: as configured, else cqstore-rocksdb's, pyspark's, the system's.

Jars contain a build per platform; the right one is unpacked once into a cache folder that only its
owner may write. Its file name contains the CRC and size of the jar member and the SHA-256 of the
content. They are checked (15 MB, 25 ms) once, and again if anything recorded by ``checked_file``
has changed: the loaded library is always the one from the jar.
"""

import hashlib
import os
import platform
import re
import stat
import sys
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cqstore.cq_rocksdb.library.checked_file import is_checked, note_checked
from cqstore.store.errors import StoreIOError, UnsupportedFormatError, os_errors
from cqstore.store.files import read_file, reading, replacing
from cqstore.store.path_kind import is_dir, is_file

JAR_PATTERN = "rocksdbjni-*.jar"
_SYSTEM_PATTERN = "librocksdb.so*"
_SYSTEM_FOLDERS = ("/usr/local/lib", "/usr/lib64", "/usr/lib", "/lib64", "/lib")
_FOREIGN_WRITE = stat.S_IWGRP | stat.S_IWOTH
_JAR_HEAD = b"PK\x03\x04"
_LIBRARY_HEADS = {b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"}
"""Magic bytes of ELF, Mach-O, and Mach-O for several machines."""
_MACHINES = {"x86_64": "64", "AMD64": "64", "i386": "32", "i586": "32", "i686": "32"}
"""Suffix of a machine in RocksDB's jars, if it is not ``-`` and the machine's name."""


class LibraryNotFoundError(UnsupportedFormatError):
    """No usable RocksDB library was found; the message lists the tried ones and their errors."""


@dataclass(frozen=True, slots=True)
class NativeLibrary:
    """A RocksDB library that can be loaded, and where it was found."""

    path: Path
    source: str
    """Description of its origin: a file, or a jar and its member."""


@dataclass(frozen=True, slots=True)
class Platform:
    """The system, processor and C library that a build of RocksDB must fit."""

    system: str = sys.platform
    machine: str = platform.machine()
    libc: str = platform.libc_ver()[0] or "musl"

    @property
    def member(self) -> str:
        """Return the name of the build for this platform in RocksDB's jars."""
        if self.system == "darwin":
            machine = "arm64" if self.machine == "arm64" else "x86_64"
            return f"librocksdbjni-osx-{machine}.jnilib"
        machine = _MACHINES.get(self.machine, f"-{self.machine}")
        libc = "" if self.libc == "glibc" else "-musl"
        return f"librocksdbjni-linux{machine}{libc}.so"


HERE = Platform()


def find_library(
    configured: Path | None, cache: Path | None = None, places: Iterable[Path] | None = None
) -> NativeLibrary:
    """Return the library to load.

    Args:
        configured: a library, a jar that contains one, or a folder with such a jar (a broker's
            ``lib``); then nothing else is tried.
        cache: folder into which jars are unpacked; by default below the user's cache folder.
        places: what is tried if nothing is configured, the best first; by default the
            installed libraries.

    Raises:
        LibraryNotFoundError: no library was found; the message lists the places and why
            what they contain cannot be used.
        StoreIOError: the configured library cannot be read or unpacked.
    """
    if configured is not None:
        return _usable(configured, cache)
    if places is None:
        places = installed_places(_own_library(), _spark_jars(), _system_folders())
    faults = []
    for place in places:
        try:
            return _usable(place, cache)
        except (LibraryNotFoundError, StoreIOError) as exc:
            faults.append(str(exc))
    looked = "; ".join(faults) or (
        "none of cqstore-rocksdb, pyspark and librocksdb.so is installed. Install one of them, or"
        " set rocksdbLibrary, for example to the lib folder of a RocketMQ broker"
    )
    raise LibraryNotFoundError(f"no RocksDB library found: {looked}")


def installed_places(
    own: Path | None, spark_jars: Path | None, system_folders: Iterable[Path]
) -> Iterator[Path]:
    """Yield the places that may contain a library, the best first.

    That is the library of ``cqstore-rocksdb``, ``own``, then pyspark's jars, then the system's.
    """
    if own is not None:
        yield own
    if spark_jars is not None:
        yield from sorted(spark_jars.glob(JAR_PATTERN), key=_version, reverse=True)
    for folder in system_folders:
        yield from sorted(folder.glob(_SYSTEM_PATTERN), key=_version, reverse=True)


def _own_library() -> Path | None:
    try:
        from cqstore_rocksdb import library_path  # noqa: PLC0415 - it need not be there
    except ModuleNotFoundError:
        return None
    return library_path()


def _spark_jars() -> Path | None:
    spark = find_spec("pyspark")  # finds it without importing it
    return None if spark is None or spark.origin is None else Path(spark.origin).parent / "jars"


def _system_folders() -> list[Path]:
    return [Path(f"/usr/lib/{HERE.machine}-linux-gnu"), *map(Path, _SYSTEM_FOLDERS)]


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", path.name))


def _usable(place: Path, cache: Path | None) -> NativeLibrary:
    """Return the library at or in ``place``; a library in a jar is unpacked into ``cache``.

    Raises:
        LibraryNotFoundError: no library was found.
    """
    if is_dir(place):
        jars = sorted(place.glob(JAR_PATTERN), key=_version)
        if not jars:
            raise LibraryNotFoundError(f"the folder contains no {JAR_PATTERN}", path=place)
        place = jars[-1]
    if not is_file(place):
        raise LibraryNotFoundError("the file does not exist", path=place)
    with os_errors("read a RocksDB library", place), reading(place) as file:
        head = file.read(4)
    # Not ``zipfile.is_zipfile``: it returns False for a truncated jar, which is not a library.
    if head == _JAR_HEAD:
        return unpacked(place, cache or _user_cache())
    if head not in _LIBRARY_HEADS:
        raise LibraryNotFoundError("the file is neither a library nor a jar", path=place)
    return NativeLibrary(place, str(place))


def _user_cache() -> Path:
    try:
        return Path.home() / ".cache" / "cqstore"
    except RuntimeError as exc:
        raise LibraryNotFoundError(
            "cannot unpack a jar: this user has no home folder. Set rocksdbLibrary to a library"
        ) from exc


def unpacked(jar: Path, cache: Path, target: Platform = HERE) -> NativeLibrary:
    """Return the build for ``target`` in ``jar``, unpacked into ``cache`` if needed.

    Any number of processes may do this at once.

    Raises:
        LibraryNotFoundError: the jar is damaged or has no such build, or the cache folder belongs
            to another user or is writable for others.
        StoreIOError: the jar cannot be read, or the build cannot be unpacked.
    """
    _make_cache(cache)
    try:
        with os_errors("read the jar", jar), zipfile.ZipFile(jar) as archive:
            member = archive.getinfo(target.member)
            key = f"rocksdb-{member.CRC:08x}-{member.file_size}"
            library = _cached(member, cache, key) or _unpack(archive, member, cache, key)
    except KeyError as exc:
        raise LibraryNotFoundError(f"the jar does not contain {target.member}", path=jar) from exc
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as exc:
        # RuntimeError: encrypted, or an unsupported compression.
        raise LibraryNotFoundError(f"the jar is damaged: {exc}", path=jar) from exc
    return NativeLibrary(library, f"{jar}!{target.member}")


def _make_cache(cache: Path) -> None:
    """Create the cache folder, which other users must not be able to write to.

    Raises:
        LibraryNotFoundError: other users can write to it.
    """
    with os_errors("create the cache folder", cache):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = cache.stat()
    if status.st_uid != os.getuid() or status.st_mode & _FOREIGN_WRITE:
        raise LibraryNotFoundError(
            "cannot load libraries from the cache folder: it belongs to another user, or others may"
            " write to it",
            path=cache,
        )


def _cached(member: zipfile.ZipInfo, cache: Path, key: str) -> Path | None:
    """Return the unpacked library whose content matches its name and ``member``.

    A damaged one is kept: unpacking renames the right one over it. Unlinking it here could remove
    a file that another process has just written in its place.
    """
    for path in cache.glob(f"{key}-*.so"):
        with os_errors("read a cached library", path):
            if is_checked(path):
                return path
            before = path.stat()
            data = read_file(path, member.file_size)
        named = path.name == f"{key}-{hashlib.sha256(data).hexdigest()}.so"
        if named and zlib.crc32(data) == member.CRC:
            note_checked(path, before)
            return path
    return None


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, cache: Path, key: str) -> Path:
    data = archive.read(member)  # checks the CRC
    path = cache / f"{key}-{hashlib.sha256(data).hexdigest()}.so"
    unfinished = cache / f"unpacking-{uuid.uuid4().hex}"
    with os_errors("unpack a RocksDB library", cache), replacing(path, unfinished) as file:
        file.write(data)
    return path
