"""Where a RocksDB library is found: as configured, inside pyspark's wheel, in the system.

Jars carry a build for each platform; the right one is unpacked once into a cache folder that only
its owner may write. Its name there holds the member's CRC and size and its own SHA-256, which is
checked in every process that uses it (15 MB, 60 ms): what is loaded is what the jar held.
"""

import hashlib
import os
import platform
import re
import stat
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from store.errors import UnsupportedFormatError, os_errors

JAR_PATTERN = "rocksdbjni-*.jar"
_SYSTEM_PATTERN = "librocksdb.so*"
_SYSTEM_FOLDERS = ("/usr/local/lib", "/usr/lib64", "/usr/lib", "/lib64", "/lib")
_FOREIGN_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class NativeLibrary:
    """A library to load."""

    path: Path
    source: str
    """Where it comes from, for people: a file, or a jar and its member."""


@dataclass(frozen=True, slots=True)
class Platform:
    """What a build must fit."""

    system: str = sys.platform
    machine: str = platform.machine()
    libc: str = platform.libc_ver()[0] or "musl"

    @property
    def member(self) -> str:
        """Return the name that RocksDB's jars give the build for this platform."""
        if self.system == "darwin":
            machine = "arm64" if self.machine == "arm64" else "x86_64"
            return f"librocksdbjni-osx-{machine}.jnilib"
        machine = "64" if self.machine in {"x86_64", "AMD64"} else f"-{self.machine}"
        libc = "" if self.libc == "glibc" else "-musl"
        return f"librocksdbjni-linux{machine}{libc}.so"


HERE = Platform()


def find_library(configured: Path | None, cache: Path | None = None) -> NativeLibrary:
    """Return the library to load.

    Args:
        configured: a library, a jar that holds one, or a folder with such a jar (a broker's
            ``lib``); then nothing else is looked at.
        cache: where members of jars are unpacked; by default below the user's cache folder.

    Raises:
        UnsupportedFormatError: there is none; the message says where it was looked for and why
            what was there does not do.
    """
    cache = cache or Path.home() / ".cache" / "cqstore"
    if configured is not None:
        return _usable(configured, cache)
    faults = []
    for place in _places():
        try:
            return _usable(place, cache)
        except UnsupportedFormatError as exc:
            faults.append(str(exc))
    looked = "; ".join(faults) or "neither pyspark nor a librocksdb.so is installed"
    raise UnsupportedFormatError(f"no RocksDB library is found: {looked}")


def _places() -> Iterator[Path]:
    """Yield what may hold a library, the best first."""
    spark = find_spec("pyspark")  # looks it up, imports nothing
    if spark is not None and spark.origin is not None:
        yield from sorted((Path(spark.origin).parent / "jars").glob(JAR_PATTERN), reverse=True)
    for folder in (f"/usr/lib/{HERE.machine}-linux-gnu", *_SYSTEM_FOLDERS):
        yield from sorted(Path(folder).glob(_SYSTEM_PATTERN), key=_version, reverse=True)


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", path.name))


def _usable(place: Path, cache: Path) -> NativeLibrary:
    if place.is_dir():
        jars = sorted(place.glob(JAR_PATTERN), key=_version)
        if not jars:
            raise UnsupportedFormatError(f"the folder holds no {JAR_PATTERN}", path=place)
        place = jars[-1]
    if not place.is_file():
        raise UnsupportedFormatError("there is no such file", path=place)
    if zipfile.is_zipfile(place):
        return unpacked(place, cache)
    return NativeLibrary(place, str(place))


def unpacked(jar: Path, cache: Path, target: Platform = HERE) -> NativeLibrary:
    """Return the build for ``target`` in ``jar``, unpacked into ``cache`` if it is not yet there.

    Any number of processes may do this at once.

    Raises:
        UnsupportedFormatError: the jar is damaged, has no such build, or the cache folder is
            another user's or open to others.
        StoreIOError: the build cannot be unpacked.
    """
    _make_cache(cache)
    try:
        with zipfile.ZipFile(jar) as archive:
            member = archive.getinfo(target.member)
            key = f"rocksdb-{member.CRC:08x}-{member.file_size}"
            library = _cached(cache, key) or _unpack(archive, member, cache, key)
    except KeyError as exc:
        raise UnsupportedFormatError(f"the jar has no {target.member}", path=jar) from exc
    except (zipfile.BadZipFile, zlib.error) as exc:
        raise UnsupportedFormatError(f"the jar is damaged: {exc}", path=jar) from exc
    return NativeLibrary(library, f"{jar}!{target.member}")


def _make_cache(cache: Path) -> None:
    with os_errors("make the cache folder", cache):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = cache.stat()
    if status.st_uid != os.getuid() or status.st_mode & _FOREIGN_WRITE:
        raise UnsupportedFormatError(
            "the cache folder belongs to another user, or others may write to it: libraries would"
            " be loaded from there",
            path=cache,
        )


def _cached(cache: Path, key: str) -> Path | None:
    """Return the unpacked library whose content is what its name says; others are removed."""
    for path in cache.glob(f"{key}-*.so"):
        with os_errors("read a cached library", path):
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            if path.name == f"{key}-{found}.so":
                return path
            path.unlink(missing_ok=True)
    return None


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, cache: Path, key: str) -> Path:
    data = archive.read(member)  # checks the CRC
    path = cache / f"{key}-{hashlib.sha256(data).hexdigest()}.so"
    with os_errors("unpack a RocksDB library", cache):
        number, name = tempfile.mkstemp(dir=cache, prefix="unpacking-")
        try:
            with open(number, "wb") as file:  # noqa: PTH123 - a descriptor
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).rename(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    return path
