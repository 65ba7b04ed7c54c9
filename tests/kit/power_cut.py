"""A disk that remembers what was synced, and builds the folder that a power cut would leave.

``Disk`` watches a real folder. Contents are durable after ``fsync``, ``fdatasync`` or ``syncfs`` of
the file, names after an ``fsync`` of their folder. ``Image.build`` takes everything durable and, of
the rest, any part: each page of a file in any state it was seen in since its last sync, each change
of a name done or not (a rename as a whole). RocksDB's own files are not looked into: they are as at
its last flush, or as they are.
"""

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

T = TypeVar("T")
SECTOR = 512
_SEEN = 4
"""States of a file that are kept since its last sync."""
_INLINE = {"cqstore-allocate", "cqstore-index-flush"}
"""Threads that run at once to their end, so that a seed gives the same run again."""


@dataclass(eq=False, slots=True)
class Node:
    """A file or folder. ``changes`` and ``seen`` are since the last sync, oldest first."""

    is_folder: bool
    inode: int
    durable: bytes = b""
    seen: list[bytes] = field(default_factory=list)
    names: dict[str, "Node"] = field(default_factory=dict)
    """Entries of a folder at its last sync."""
    changes: list[list[tuple[str, "Node | None"]]] = field(default_factory=list)
    """Each a list of names that change together, with what they lead to."""
    live: dict[str, "Node"] = field(default_factory=dict)

    @property
    def now(self) -> bytes:
        return self.seen[-1] if self.seen else self.durable

    def note(self, data: bytes) -> None:
        if data != self.now:
            self.seen = [*self.seen[-_SEEN + 1 :], data]

    def sync(self) -> None:
        if self.is_folder:
            self.names, self.changes = dict(self.live), []
        else:
            self.durable, self.seen = self.now, []


Files = dict[str, bytes]


@dataclass(slots=True)
class Image:
    """One instant: what is durable, what might be, and what ``promise`` was at that moment."""

    top: Node
    where: str
    promise: Any
    databases: list[Files]
    """RocksDB's folder at its last flush and now, or nothing."""
    database_name: str

    def build(self, target: Path, draw: random.Random) -> None:
        """Make the folder that a power cut leaves at ``target``, which does not exist."""
        _build_folder(self.top, target, draw)
        if self.databases:
            folder = target / self.database_name
            folder.mkdir()
            for name, data in draw.choice(self.databases).items():
                (folder / name).write_bytes(data)


class Disk:
    """Follows one folder, of which everything there is durable at the start.

    ``promise`` is asked at each instant that is kept. ``limit`` instants are kept of all that were,
    each with the same chance.
    """

    def __init__(
        self,
        root: Path,
        draw: random.Random,
        promise: Callable[[], Any],
        *,
        limit: int,
        database: str | None = None,
    ) -> None:
        self.root = root
        self.images: list[Image] = []
        self.at_each: Callable[[Disk], None] | None = None
        """Called at each instant, with the tree up to date."""
        self.top = Node(is_folder=True, inode=root.stat().st_ino)
        self._nodes: dict[int, Node] = {self.top.inode: self.top}
        self._draw = draw
        self._promise = promise
        self._limit = limit
        self._instants = 0
        self._database = database
        self._database_flushed: Files = {}
        self._lock = threading.RLock()
        self.look()
        self._sync_all()
        self.database_flushed()

    # ---- looking

    def look(self) -> None:
        """Take over what the folder holds now."""
        with self._lock:
            self._look(self.top, self.root)

    def _look(self, node: Node, path: Path) -> None:
        found: dict[str, Node] = {}
        for entry in os.scandir(path):
            if path == self.root and entry.name == self._database:
                continue
            if entry.name == "rocksdb-log":
                continue
            inode = entry.inode()
            child = self._nodes.get(inode)
            if child is None:
                child = self._nodes[inode] = Node(entry.is_dir(), inode)
            found[entry.name] = child
            if node.live.get(entry.name) is not child:
                node.changes.append([(entry.name, child)])
        node.changes += [[(name, None)] for name in node.live if name not in found]
        node.live = found
        for name, child in found.items():
            if child.is_folder:
                self._look(child, path / name)
            else:
                child.note((path / name).read_bytes())

    def instant(self, where: str) -> None:
        """Note that power may fail here."""
        with self._lock:
            self._instants += 1
            place = self._draw.randrange(self._instants)
            keep = place < self._limit
            if not keep and self.at_each is None:
                return
            self.look()
            if self.at_each is not None:
                self.at_each(self)
            if not keep:
                return
            databases = []
            if self._database is not None:
                databases = [self._database_flushed, self._read_database()]
            image = Image(
                _frozen(self.top, {}), where, self._promise(), databases, self._database or ""
            )
            if len(self.images) < self._limit:
                self.images.append(image)
            else:
                self.images[place] = image

    def _sync_all(self) -> None:
        for node in self._nodes.values():
            node.sync()

    # ---- asking

    def files(self, folder: str) -> dict[str, Node]:
        """Return the files below a folder of the root, by name (by path, where there are more)."""
        top = self.top.live.get(folder)
        return dict(_files(top, "")) if top is not None else {}

    def named(self, name: str) -> list[Node]:
        """Return every file that may have this name in the root after a power cut."""
        found = [self.top.names.get(name)]
        found += [node for change in self.top.changes for at, node in change if at == name]
        return [node for node in found if node is not None]

    def has_durable_name(self, wanted: Node) -> bool:
        """Return whether a path of names leads to the file, all of them synced."""
        return any(node is wanted for node in _durable(self.top))

    # ---- RocksDB

    def database_flushed(self) -> None:
        """Take RocksDB's folder as it is for what a power cut leaves of it at least."""
        if self._database is not None:
            self._database_flushed = self._read_database()

    @contextmanager
    def database_as_it_is(self) -> Iterator[None]:
        """Leave RocksDB's folder as it was before the block, as the end of its process would."""
        before = self._read_database()
        yield
        folder = self.root / (self._database or "")
        for path in folder.iterdir():
            if path.name not in before:
                path.unlink()
        for name, data in before.items():
            (folder / name).write_bytes(data)

    def _read_database(self) -> Files:
        folder = self.root / (self._database or "")
        while folder.is_dir():
            # What the manifest names is there, unless a compaction has taken it away since.
            paths = sorted(folder.iterdir(), key=lambda path: "MANIFEST" not in path.name)
            try:
                files = {path.name: path.read_bytes() for path in paths}
            except FileNotFoundError:
                continue
            if sorted(folder.iterdir()) == sorted(paths):
                return files
        return {}

    # ---- watching

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow this process while the block runs."""
        with ExitStack() as patched:
            for name in ("fsync", "fdatasync"):
                patched.enter_context(mock.patch.object(os, name, self._syncing(name)))
            for name in ("unlink", "remove", "rmdir"):
                patched.enter_context(mock.patch.object(os, name, self._removing(name)))
            for name in ("rename", "replace"):
                patched.enter_context(mock.patch.object(os, name, self._renaming(name)))
            for module in ("cqstore.cq_file.file_sync", "cqstore.store.files"):
                patched.enter_context(mock.patch(f"{module}.find_syncfs", self._find_syncfs))
            patched.enter_context(mock.patch("cqstore.cq_file.file_sync._SYNCFS_FROM", 4))
            patched.enter_context(mock.patch.object(threading.Thread, "start", _start()))
            yield

    def _syncing(self, name: str) -> Callable[[int], None]:
        original = getattr(os, name)

        def sync(fd: int) -> None:
            inode = os.fstat(fd).st_ino
            path = str(Path(f"/proc/self/fd/{fd}").readlink())
            if not self._is_mine(path):
                original(fd)
                return
            self.instant(f"before {name} {path}")
            with self._lock:
                self.look()
                node = self._nodes.get(inode)
                if node is not None:  # else it was unlinked while it was open
                    node.sync()
            self.instant(f"after {name} {path}")

        return sync

    def _find_syncfs(self) -> Callable[[int], int]:
        def syncfs(fd: int) -> int:
            _ = fd
            self.instant("before syncfs")
            with self._lock:
                self.look()
                self._sync_all()
            self.instant("after syncfs")
            return 0

        return syncfs

    def _removing(self, name: str) -> Callable[..., None]:
        original = getattr(os, name)

        def remove(path: Any, *, dir_fd: int | None = None) -> None:
            full = _full(path, dir_fd)
            if not self._is_mine(full):
                original(path, dir_fd=dir_fd)
                return
            with self._lock:
                self.look()
                inode = Path(full).lstat().st_ino
                original(path, dir_fd=dir_fd)
                self._nodes.pop(inode, None)
                self.look()
            self.instant(f"after {name} {full}")

        return remove

    def _renaming(self, name: str) -> Callable[..., None]:
        original = getattr(os, name)

        def rename(source: Any, target: Any) -> None:
            old, new = _full(source, None), _full(target, None)
            if not self._is_mine(old):
                original(source, target)
                return
            assert Path(old).parent == Path(new).parent
            self.instant(f"before {name} {new}")
            with self._lock:
                self.look()
                node = self._nodes[Path(old).lstat().st_ino]
                victim = self._nodes.pop(Path(new).lstat().st_ino) if Path(new).exists() else None
                original(source, target)
                assert victim is not node
                parent = self._nodes[Path(old).parent.lstat().st_ino]
                first, second = Path(old).name, Path(new).name
                parent.changes.append([(first, None), (second, node)])
                del parent.live[first]
                parent.live[second] = node
            self.instant(f"after {name} {new}")

        return rename

    def _is_mine(self, path: str) -> bool:
        if not Path(path).is_relative_to(self.root):
            return False
        parts = Path(path).relative_to(self.root).parts
        return parts[:1] != (self._database,) and "rocksdb-log" not in parts


def _full(path: Any, dir_fd: int | None) -> str:
    folder = Path(f"/proc/self/fd/{dir_fd}").readlink() if dir_fd is not None else Path.cwd()
    return str(folder / path)


def _start() -> Callable[[threading.Thread], None]:
    original = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        original(thread)
        if thread.name in _INLINE:
            thread.join()

    return start


def _files(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    for name, child in node.live.items():
        if child.is_folder:
            yield from _files(child, f"{path}{name}/")
        else:
            yield path + name, child


def _durable(node: Node) -> Iterator[Node]:
    for child in node.names.values():
        yield child
        yield from _durable(child)


def _frozen(node: Node, done: dict[int, Node]) -> Node:
    """Return a copy of the tree, in which the same file is the same node."""
    copy = done.get(id(node))
    if copy is None:
        copy = done[id(node)] = Node(node.is_folder, node.inode, node.durable, list(node.seen))
        copy.names = {name: _frozen(child, done) for name, child in node.names.items()}
        copy.live = {name: _frozen(child, done) for name, child in node.live.items()}
        copy.changes = [
            [(name, child and _frozen(child, done)) for name, child in change]
            for change in node.changes
        ]
    return copy


def _build_folder(node: Node, target: Path, draw: random.Random) -> None:
    target.mkdir()
    names = dict(node.names)
    for change in _some(node.changes, draw):
        for name, child in change:
            if child is None:
                names.pop(name, None)
            else:
                names[name] = child
    for name, child in names.items():
        if child.is_folder:
            _build_folder(child, target / name, draw)
        else:
            page = draw.choice([SECTOR, 4096])
            (target / name).write_bytes(torn(child, page, draw))


def _some(changes: list[T], draw: random.Random) -> list[T]:
    """Return some of ``changes`` in their order: none, all, the first ones, or any."""
    count = len(changes)
    match draw.randrange(4):
        case 0:
            return []
        case 1:
            return changes
        case 2:
            return changes[: draw.randint(0, count)]
    return [change for change in changes if draw.randrange(2)]


def torn(node: Node, page: int, draw: random.Random) -> bytes:
    """Return a content of a file, each page in one of its states."""
    states = [node.durable, *node.seen]
    share = draw.choice([0.0, 0.1, 0.5, 0.9, 1.0])
    if share in (0.0, 1.0):
        return states[-1] if share else states[0]
    size = len(draw.choice(states))
    data = bytearray()
    while len(data) < size:
        state = draw.choice(states[1:] or states) if draw.random() < share else states[0]
        data += state[len(data) : len(data) + page].ljust(page, b"\0")
    return bytes(data[:size])
