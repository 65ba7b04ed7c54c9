"""What stands before the C library: calls are met by kind and path, counted, refused, cut short."""

import ctypes
import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.call_order import CallOrder
from tests.kit.engines import ENGINES
from tests.kit.shim import KINDS, SHORT, Shim
from tests.kit.told import CONFIG

DATA = b"0123456789"
LIBRARY = ctypes.CDLL(None, use_errno=True)


class Folder:
    """A folder with a file that is open, and every call on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        (path / "file").write_bytes(DATA)
        self.fd = os.open(path / "file", os.O_RDWR)
        self.folder = os.open(path, os.O_RDONLY)

    def other(self, name: str) -> Path:
        (self.path / name).touch()
        return self.path / name

    def library(self, name: str, *words: object) -> None:
        if LIBRARY[name](*words) < 0:
            raise OSError(ctypes.get_errno(), name)

    def copy(self, call: Callable[[int, int], object]) -> None:
        with (self.path.parent / "source").open("w+b") as source:
            source.write(DATA)
            source.flush()
            call(source.fileno(), self.fd)

    def calls(self) -> dict[str, tuple[str, Callable[[], object]]]:
        """Return what is called, and its kind."""
        fd, at, path = self.fd, self.folder, self.path
        mapped = LIBRARY["msync"], ctypes.c_void_p(0)
        return {
            "open": ("open", lambda: os.close(os.open(path / "file", os.O_RDONLY))),
            "openat": ("open", lambda: os.close(os.open("file", os.O_RDONLY, dir_fd=at))),
            "write": ("write", lambda: os.write(fd, DATA)),
            "writev": ("write", lambda: os.writev(fd, [DATA, DATA])),
            "sendfile": ("write", lambda: self.copy(lambda a, b: os.sendfile(b, a, 0, 4))),
            "copy": ("write", lambda: self.copy(lambda a, b: os.copy_file_range(a, b, 4, 0))),
            "pwrite": ("pwrite", lambda: os.pwrite(fd, DATA, 0)),
            "pwritev": ("pwrite", lambda: os.pwritev(fd, [DATA, DATA], 0)),
            "fsync": ("fsync", lambda: os.fsync(fd)),
            "fsync of a folder": ("fsync", lambda: os.fsync(at)),
            "syncfs": ("fsync", lambda: self.library("syncfs", fd)),
            "fdatasync": ("fdatasync", lambda: os.fdatasync(fd)),
            "fallocate": ("fallocate", lambda: self.library("fallocate", fd, 0, 0, 4096)),
            "posix_fallocate": ("fallocate", lambda: os.posix_fallocate(fd, 0, 4096)),
            "ftruncate": ("ftruncate", lambda: os.ftruncate(fd, 5)),
            "truncate": ("ftruncate", lambda: os.truncate(path / "file", 5)),
            "rename": ("rename", lambda: self.other("a").rename(path / "b")),
            "renameat": ("rename", lambda: os.rename("file", "b", src_dir_fd=at, dst_dir_fd=at)),
            "unlink": ("unlink", lambda: self.other("a").unlink()),
            "unlinkat": ("unlink", lambda: os.unlink("file", dir_fd=at)),
            "rmdir": ("unlink", lambda: Path(path, "none").rmdir()),
            "mkdir": ("mkdir", lambda: Path(path, "new").mkdir()),
            "mkdirat": ("mkdir", lambda: os.mkdir("new", dir_fd=at)),
            "mmap": ("mmap", lambda: mmap.mmap(fd, 10).close()),
            "msync": ("msync", lambda: self.library("msync", mapped[1], 0, 4)),
            "range": ("sync_file_range", lambda: self.library("sync_file_range", fd, 0, 0, 0)),
        }


NAMES = (
    "open", "openat", "write", "writev", "sendfile", "copy", "pwrite", "pwritev", "fsync",
    "fsync of a folder", "syncfs", "fdatasync", "fallocate", "posix_fallocate", "ftruncate",
    "truncate", "rename", "renameat", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "mmap",
    "msync", "range",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path / "root")
    assert tuple(made.calls()) == NAMES
    yield made
    os.close(made.fd)
    os.close(made.folder)


def code_of(call: Callable[[], object]) -> int | None:
    """Return what the system answers; 0: it was done."""
    try:
        call()
    except OSError as exc:
        return exc.errno
    return 0


@pytest.fixture
def shim() -> Iterator[Shim]:
    with Shim() as made:
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_each_call_is_met_and_refused_below_the_folder_alone(
    folder: Folder, tmp_path: Path, shim: Shim, name: str
) -> None:
    kind, call = folder.calls()[name]
    (folder.path / "none").mkdir()
    shim.arm(folder.path, [kind], errno.EDQUOT)
    assert code_of(call) == errno.EDQUOT
    assert (shim.refused, shim.counts[kind]) == (1, 1)
    assert Path(shim.struck).is_relative_to(folder.path)
    others = [other for other in KINDS if other != kind]
    shim.arm(folder.path, others, errno.EDQUOT, part="root/file")
    if name not in {"rename", "unlink"}:  # they make the file first
        call()
        assert (shim.refused, shim.counts[kind]) == (0, 1)
    shim.arm(tmp_path / "elsewhere", KINDS, errno.EDQUOT)
    os.fsync(folder.fd)
    assert (shim.refused, sum(shim.counts.values())) == (0, 0)


def test_calls_are_refused_from_one_on_as_often_as_is_said(folder: Folder, shim: Shim) -> None:
    shim.arm(folder.path, ["fsync", "fdatasync"], errno.EIO, first=2, times=2, part="file")
    codes = []
    for sync in (os.fsync, os.fdatasync, os.fsync, os.fdatasync):
        os.fsync(folder.folder)  # its path has no such part
        codes.append(code_of(lambda sync=sync: sync(folder.fd)))  # type: ignore[misc]
    assert codes == [0, errno.EIO, errno.EIO, 0]
    assert (shim.refused, shim.counts["fsync"], shim.counts["fdatasync"]) == (2, 6, 2)
    shim.off()
    os.fdatasync(folder.fd)
    assert shim.counts["fdatasync"] == 2


def test_a_part_is_taken_of_what_is_written(folder: Folder, shim: Shim) -> None:
    shim.watch(folder.path)
    shim.write_parts_only()
    assert os.pwrite(folder.fd, DATA, 0) == 5
    assert os.pwrite(folder.fd, b"x", 0) == 1
    assert os.writev(folder.fd, [DATA, DATA]) == 5
    os.fsync(folder.fd)
    shim.arm(folder.path, ["write"], SHORT, times=1)
    shim.off()
    assert os.pwrite(folder.fd, DATA, 0) == len(DATA)
    shim.arm(folder.path, ["write"], SHORT, times=1)
    assert [os.write(folder.fd, DATA) for _ in range(2)] == [5, 10]


def test_the_order_of_calls_has_writes_of_compiled_code(tmp_path: Path) -> None:
    calls = CallOrder(tmp_path)
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        assert store.put_message(Message("t", b"x")).ok
        store.max_offset("t", 0)
        with calls.watching():
            assert store.put_message(Message("t", b"x")).ok
            store.max_offset("t", 0)
    assert len(calls.places("write", "consumequeue/t/0")) == 1


def test_the_order_of_calls_has_writes_to_the_index(tmp_path: Path) -> None:
    calls = CallOrder(tmp_path)
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        assert store.put_message(Message("t", b"x", 0, {"KEYS": "a"})).ok
        with calls.watching():
            store.max_offset("t", 0)
    writes = [at for at, (call, path) in enumerate(calls.made) if call == "write"]
    assert len([at for at in writes if calls.made[at][1].startswith("index/2")]) == 3


def test_what_the_core_writes_is_met_and_told(tmp_path: Path, shim: Shim) -> None:
    reported: list[tuple[str, str]] = []
    shim.watch(tmp_path)
    shim.notify(lambda kind, path: reported.append((kind, path)), "/cq_file/_append")
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        assert store.put_message(Message("t", b"x")).ok
        store.max_offset("t", 0)
        assert reported == []  # the first of a queue makes its file
        assert store.put_message(Message("t", b"x")).ok
        store.max_offset("t", 0)
    assert reported == [("pwrite", str(tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}"))]
    assert shim.foreign["pwrite"] == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_what_rocksdb_calls_is_met(tmp_path: Path, shim: Shim, engine: RocksDBEngine) -> None:
    shim.watch(tmp_path)
    config = CONFIG.model_copy(update={"rocksdb_engine": engine})
    MessageStore.open(tmp_path, config, backend="rocksdb").close()
    for kind in ("open", "write", "fsync", "fdatasync", "rename", "ftruncate", "mkdir"):
        assert shim.foreign[kind], kind


def test_a_child_process_meets_nothing(tmp_path: Path, shim: Shim) -> None:
    shim.arm(tmp_path, KINDS, errno.EIO)
    code = f"open({str(tmp_path / 'x')!r}, 'w').write('fine')"
    subprocess.run([sys.executable, "-c", code], check=True)
    shim.off()
    assert (tmp_path / "x").read_text() == "fine"
