"""Finding a RocksDB library: jars, the cache, and what is refused."""

import errno
import hashlib
import os
import subprocess
import sys
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from cqstore.cq_rocksdb.engine.choice import engine_works
from cqstore.cq_rocksdb.library import checked_file, native_library
from cqstore.cq_rocksdb.library.native_library import (
    LibraryNotFoundError,
    Platform,
    find_library,
    installed_places,
    unpacked,
)
from cqstore.store.errors import StoreError, StoreIOError
from cqstore.store.files import read_file
from cqstore.store.settings.config import RocksDBEngine

LINUX = Platform("linux", "x86_64", "glibc")
CONTENT = b"\x7fELF, as far as anybody looks" * 1000


def jar(path: Path, member: str = LINUX.member, content: bytes = CONTENT) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr("org/rocksdb/RocksDB.class", b"else")
    return path


@pytest.mark.parametrize(
    ("platform", "member"),
    [
        (LINUX, "librocksdbjni-linux64.so"),
        (Platform("linux", "x86_64", "musl"), "librocksdbjni-linux64-musl.so"),
        (Platform("linux", "i686", "glibc"), "librocksdbjni-linux32.so"),
        (Platform("linux", "aarch64", "glibc"), "librocksdbjni-linux-aarch64.so"),
        (Platform("linux", "aarch64", "musl"), "librocksdbjni-linux-aarch64-musl.so"),
        (Platform("darwin", "arm64", ""), "librocksdbjni-osx-arm64.jnilib"),
        (Platform("darwin", "x86_64", ""), "librocksdbjni-osx-x86_64.jnilib"),
    ],
)
def test_each_platform_has_its_build(tmp_path: Path, platform: Platform, member: str) -> None:
    found = unpacked(jar(tmp_path / "a.jar", member), tmp_path / "cache", platform)
    assert found.path.read_bytes() == CONTENT
    assert found.source == f"{tmp_path / 'a.jar'}!{member}"


def test_a_member_is_unpacked_once_into_a_private_folder(tmp_path: Path) -> None:
    archive = jar(tmp_path / "a.jar")
    first = unpacked(archive, tmp_path / "cache", LINUX).path
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert hashlib.sha256(CONTENT).hexdigest() in first.name
    before = first.stat()
    assert unpacked(archive, tmp_path / "cache", LINUX).path == first
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_cached_library_that_was_changed_is_replaced(tmp_path: Path) -> None:
    archive = jar(tmp_path / "a.jar")
    path = unpacked(archive, tmp_path / "cache", LINUX).path
    path.write_bytes(CONTENT[:-1] + b"!")
    assert unpacked(archive, tmp_path / "cache", LINUX).path.read_bytes() == CONTENT
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return what is read whole from now on; every file counts as one that changed long ago."""
    found: list[Path] = []

    def noting(path: Path, most: int) -> bytes:
        found.append(path)
        return read_file(path, most)

    monkeypatch.setattr(native_library, "read_file", noting)
    monkeypatch.setattr(checked_file, "SETTLED_NS", -1 << 62)
    return found


def test_a_cached_library_is_read_once(tmp_path: Path, reads: list[Path]) -> None:
    archive, cache = jar(tmp_path / "a.jar"), tmp_path / "cache"
    path = unpacked(archive, cache, LINUX).path
    assert [unpacked(archive, cache, LINUX).path for _ in range(3)] == [path] * 3
    assert reads == [path]
    assert {file.name for file in cache.iterdir()} == {path.name, f"{path.name}.checked"}


def test_a_checked_library_that_was_changed_is_replaced_whatever_its_time_of_writing(
    tmp_path: Path, reads: list[Path]
) -> None:
    archive, cache = jar(tmp_path / "a.jar"), tmp_path / "cache"
    path = unpacked(archive, cache, LINUX).path
    before = unpacked(archive, cache, LINUX).path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # in the same tick of the system
        path.write_bytes(CONTENT[:-1] + b"!")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert unpacked(archive, cache, LINUX).path.read_bytes() == CONTENT
    reads.clear()
    assert [unpacked(archive, cache, LINUX).path for _ in range(2)] == [path] * 2
    assert reads == [path]  # of the new one no note was there


def test_a_library_that_was_changed_while_it_was_read_is_not_noted(
    tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, cache = jar(tmp_path / "a.jar"), tmp_path / "cache"
    path = unpacked(archive, cache, LINUX).path

    def rewritten(path: Path, most: int) -> bytes:
        data = read_file(path, most)
        before = path.stat()
        while path.stat().st_ctime_ns == before.st_ctime_ns:
            path.write_bytes(data[:-1] + b"!")
        return data

    with monkeypatch.context() as other:
        other.setattr(native_library, "read_file", rewritten)
        unpacked(archive, cache, LINUX)
    assert unpacked(archive, cache, LINUX).path.read_bytes() == CONTENT
    assert reads == [path]


def test_a_library_that_has_just_been_written_is_read_again(
    tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_file, "SETTLED_NS", 3600 * 10**9)
    archive, cache = jar(tmp_path / "a.jar"), tmp_path / "cache"
    path = unpacked(archive, cache, LINUX).path
    assert [unpacked(archive, cache, LINUX).path for _ in range(2)] == [path] * 2
    assert reads == [path] * 2


@pytest.mark.parametrize("kind", ["empty", "fifo", "folder"])
def test_what_is_no_note_of_a_check_is_none(tmp_path: Path, reads: list[Path], kind: str) -> None:
    archive, cache = jar(tmp_path / "a.jar"), tmp_path / "cache"
    path = unpacked(archive, cache, LINUX).path
    note = cache / f"{path.name}.checked"
    if kind == "empty":
        note.touch()
    elif kind == "fifo":
        os.mkfifo(note)
    else:
        note.mkdir()
    assert [unpacked(archive, cache, LINUX).path for _ in range(3)] == [path] * 3
    assert len(reads) == (3 if kind == "folder" else 1)  # a file takes no folder's place
    assert len(list(cache.iterdir())) == 2


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    archive = jar(tmp_path / "a.jar")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(LibraryNotFoundError, match="others may write"):
        unpacked(archive, tmp_path / "cache", LINUX)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    archive, cache = jar(tmp_path / "a.jar"), Path("/usr")
    if os.getuid() == 0:
        cache = tmp_path / "cache"
        cache.mkdir(mode=0o700)
        os.chown(cache, 12345, 12345)
    with pytest.raises(LibraryNotFoundError, match="another user") as caught:
        unpacked(archive, cache, LINUX)
    assert caught.value.path == cache


def test_a_cached_library_that_only_agrees_with_its_own_name_is_not_taken(tmp_path: Path) -> None:
    archive = jar(tmp_path / "a.jar")
    path = unpacked(archive, tmp_path / "cache", LINUX).path
    other = CONTENT[:-1] + b"!"
    key = path.name.rpartition("-")[0]
    path.unlink()
    (path.parent / f"{key}-{hashlib.sha256(other).hexdigest()}.so").write_bytes(other)
    assert unpacked(archive, tmp_path / "cache", LINUX).path.read_bytes() == CONTENT


def test_our_own_comes_first_then_pyspark_and_of_each_the_newest(tmp_path: Path) -> None:
    jars, system = tmp_path / "jars", tmp_path / "system"
    jars.mkdir()
    system.mkdir()
    names = ["rocksdbjni-10.1.0.jar", "rocksdbjni-9.8.4.jar", "spark-core.jar"]
    found = [jar(jars / name) for name in names][:2]
    for name in ("librocksdb.so.10.2.1", "librocksdb.so.7.8.3", "librocksdb.so", "libother.so"):
        (system / name).write_bytes(CONTENT)
    found += [system / f"librocksdb.so{end}" for end in (".10.2.1", ".7.8.3", "")]
    assert list(installed_places(None, jars, [tmp_path / "missing", system])) == found
    assert list(installed_places(None, None, [system])) == found[2:]
    own = tmp_path / "librocksdb.so.9.8.4"
    assert list(installed_places(own, jars, [system])) == [own, *found]


def test_without_a_setting_the_first_usable_place_is_taken(tmp_path: Path) -> None:
    good, library = jar(tmp_path / "good.jar", Platform().member), tmp_path / "librocksdb.so"
    library.write_bytes(CONTENT)
    bad = jar(tmp_path / "bad.jar", "librocksdbjni-for-none.so")
    cache = tmp_path / "cache"
    assert find_library(None, cache, [good, library]).source.startswith(str(good))
    assert find_library(None, cache, [bad, library, good]).path == library
    with pytest.raises(LibraryNotFoundError, match="the file does not exist"):
        find_library(tmp_path / "missing", cache)


def test_without_pyspark_the_system_is_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "lib" / "librocksdb.so.9"
    library.parent.mkdir()
    library.write_bytes(CONTENT)
    folders = [str(tmp_path / "missing"), str(library.parent)]
    monkeypatch.setattr(native_library, "_SYSTEM_FOLDERS", folders)
    monkeypatch.setattr(native_library, "HERE", Platform(machine="of-the-test"))
    monkeypatch.setitem(sys.modules, "cqstore_rocksdb", None)
    for spec in (None, ModuleSpec("pyspark", None)):  # the other one is a bare folder
        monkeypatch.setattr(native_library, "find_spec", {"pyspark": spec}.get)
        assert find_library(None, tmp_path / "cache").path == library
    library.unlink()
    with pytest.raises(
        LibraryNotFoundError, match=r"none of cqstore-rocksdb, pyspark and librocksdb\.so is"
    ):
        find_library(None, tmp_path / "cache")
    spark = tmp_path / "spark"
    (spark / "jars").mkdir(parents=True)
    inside = jar(spark / "jars" / "rocksdbjni-9.8.4.jar", Platform().member)
    spec = ModuleSpec("pyspark", None, origin=str(spark / "__init__.py"))
    monkeypatch.setattr(native_library, "find_spec", {"pyspark": spec}.get)
    assert find_library(None, tmp_path / "cache").source.startswith(f"{inside}!")


def test_an_installed_library_of_ours_is_taken_before_pysparks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, spark = tmp_path / "librocksdb.so.9.8.4", tmp_path / "spark"
    (spark / "jars").mkdir(parents=True)
    inside = jar(spark / "jars" / "rocksdbjni-9.8.4.jar", Platform().member)
    spec = ModuleSpec("pyspark", None, origin=str(spark / "__init__.py"))
    monkeypatch.setattr(native_library, "find_spec", {"pyspark": spec}.get)
    module = ModuleType("cqstore_rocksdb")
    vars(module)["library_path"] = lambda: own
    monkeypatch.setitem(sys.modules, "cqstore_rocksdb", module)
    own.write_bytes(CONTENT)
    assert find_library(None, tmp_path / "cache").path == own
    assert not (tmp_path / "cache").exists()  # nothing is unpacked
    own.unlink()  # an installation that was damaged
    assert find_library(None, tmp_path / "cache").source.startswith(f"{inside}!")


def test_jars_are_unpacked_below_the_home_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = jar(tmp_path / "a.jar", Platform().member)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = find_library(archive).path
    assert path.parent == tmp_path / "home" / ".cache" / "cqstore"
    assert path.parent.stat().st_mode & 0o777 == 0o700

    def homeless() -> NoReturn:
        raise RuntimeError("of the test")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(LibraryNotFoundError, match="this user has no home folder"):
        find_library(archive)
    path.unlink()
    path.mkdir()  # in the way of what is to be read
    with pytest.raises(StoreError) as caught:
        find_library(archive, path.parent)
    assert caught.value.path == path


def test_a_cache_that_cannot_be_made_leaves_the_libraries_that_need_none(tmp_path: Path) -> None:
    archive, library = jar(tmp_path / "a.jar", Platform().member), tmp_path / "librocksdb.so"
    library.write_bytes(CONTENT)
    cache = library / "cache"
    assert find_library(None, cache, [archive, library]).path == library
    with pytest.raises(LibraryNotFoundError, match="cannot create the cache folder"):
        find_library(None, cache, [archive])


def test_when_nothing_does_each_place_and_its_fault_are_named(tmp_path: Path) -> None:
    bad = jar(tmp_path / "bad.jar", "librocksdbjni-for-none.so")
    text = tmp_path / "librocksdb.so"
    text.write_bytes(b"not a library")
    with pytest.raises(LibraryNotFoundError) as caught:
        find_library(None, tmp_path / "cache", [bad, text])
    assert f"the jar does not contain {Platform().member} ({bad})" in str(caught.value)
    assert f"the file is neither a library nor a jar ({text})" in str(caught.value)


def test_what_is_configured_may_be_a_library_a_jar_or_a_folder_with_one(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    library = tmp_path / "librocksdb.so.9"
    library.write_bytes(CONTENT)
    assert find_library(library, cache).path == library
    folder = tmp_path / "lib"
    folder.mkdir()
    old = jar(folder / "rocksdbjni-8.4.4.jar", Platform().member, b"old")
    new = jar(folder / "rocksdbjni-10.1.0.jar", Platform().member, b"new")
    assert find_library(old, cache).path.read_bytes() == b"old"
    assert find_library(folder, cache).path.read_bytes() == b"new"
    assert find_library(folder, cache).source.startswith(str(new))


def test_a_configured_place_without_a_library_is_an_error_that_names_it(tmp_path: Path) -> None:
    cache, empty = tmp_path / "cache", tmp_path / "empty"
    empty.mkdir()
    missing = tmp_path / "rocksdbjni-1.jar"
    other = jar(tmp_path / "rocksdbjni-2.jar", "librocksdbjni-for-none.so")
    for place, problem in (
        (missing, "the file does not exist"),
        (other, "the jar does not contain"),
        (empty, "the folder contains no"),
    ):
        with pytest.raises(LibraryNotFoundError, match=problem) as caught:
            find_library(place, cache)
        assert caught.value.path == place


def test_a_damaged_jar_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    archive = jar(tmp_path / "a.jar", content=bytes(range(256)) * 100)
    data = bytearray(archive.read_bytes())
    data[60] ^= 0xFF
    archive.write_bytes(data)
    with pytest.raises(LibraryNotFoundError, match="damaged"):
        unpacked(archive, tmp_path / "cache", LINUX)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_jar_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    archive = jar(tmp_path / "a.jar")
    archive.write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(LibraryNotFoundError, match="the jar is damaged"):
        find_library(archive, tmp_path / "cache")


def test_a_jar_compressed_in_an_unknown_way_is_refused(tmp_path: Path) -> None:
    archive = jar(tmp_path / "a.jar")
    data = bytearray(archive.read_bytes())
    data[data.find(b"PK\x01\x02") + 10] = data[8] = 99
    archive.write_bytes(data)
    with pytest.raises(LibraryNotFoundError, match="the jar is damaged"):
        unpacked(archive, tmp_path / "cache", LINUX)


@pytest.mark.parametrize(
    ("where", "name", "problem", "place"),
    [
        (zipfile, "ZipFile", "read the jar", "a.jar"),
        (os, "replace", "unpack a RocksDB library", "cache"),
    ],
)
def test_what_the_system_refuses_is_named_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: object, name: str, problem: str,
    place: str,
) -> None:  # fmt: skip
    archive = jar(tmp_path / "a.jar")

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(where, name, refuse)
        with pytest.raises(StoreIOError, match=f"cannot {problem}") as caught:
            unpacked(archive, tmp_path / "cache", LINUX)
    assert caught.value.path == tmp_path / place
    assert list((tmp_path / "cache").iterdir()) == []
    assert unpacked(archive, tmp_path / "cache", LINUX).path.read_bytes() == CONTENT


@pytest.mark.slow
def test_processes_that_unpack_at_once_all_get_it(tmp_path: Path) -> None:
    archive = jar(tmp_path / "a.jar", Platform().member, CONTENT * 20)
    program = (
        "import sys; from pathlib import Path\n"
        "from cqstore.cq_rocksdb.library.native_library import find_library\n"
        "print(find_library(Path(sys.argv[1]), Path(sys.argv[2])).path)"
    )
    command = [sys.executable, "-c", program, str(archive), str(tmp_path / "cache")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    paths = {process.communicate(timeout=60)[0].strip() for process in started}
    assert [process.returncode for process in started] == [0] * 4
    (path,) = paths
    assert Path(path).read_bytes() == CONTENT * 20


def test_both_engines_are_tested_here() -> None:
    """Without a C compiler at installation this fails: half of the suite would be left out."""
    assert engine_works(RocksDBEngine.ROCKSDICT)
    assert engine_works(RocksDBEngine.NATIVE)
