"""A FIFO, a device, a folder or a socket in the place of any file: it is said, at once."""

import json
import random
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqstore.store.errors import CorruptionError, StoreConfigError
from cqstore.store.files import check_folder, open_regular, read_file
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.broker_conf import read_broker_conf
from cqstore.store.settings.properties_file import MAX_CONFIG_BYTES
from tests.kit.migrations import move
from tests.kit.odd_files import KINDS, put_in_place
from tests.kit.told import CONFIG, AcknowledgedWrites

SECONDS = 60
"""Within which a case of five calls must end, on a busy machine."""
MAX_KIB = 400 << 10
MAX_ADDRESSES = 8 << 30
ODDER = {"file": "rocksdb", "rocksdb": "file"}


def made(root: Path, kind: str) -> Path:
    """Return a store of one kind, in which all has been done that leaves files."""
    name, _, moving = kind.partition(" ")
    double = name == "double"
    config = CONFIG.model_copy(update={"rocksdb_cq_double_write_enable": double})
    with MessageStore.open(root, config, backend=None if double else name) as store:
        AcknowledgedWrites().work(store)
    if moving:
        move(root, target=ODDER[name])
    return root


def meet(
    store: Path, scratch: Path, cases: list[tuple[str, str]]
) -> Iterator[tuple[str, str, dict[str, str], int]]:
    """Yield how the calls of a process of its own ended, case by case."""
    words = ["-m", "tests.kit.odd_files", str(store), str(scratch), str(MAX_ADDRESSES)]
    project = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=project,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            for case in cases:
                child.stdin.write(json.dumps(case) + "\n")
                child.stdin.flush()
                assert select.select([child.stdout], [], [], SECONDS)[0], f"{case} does not end"
                answer = child.stdout.readline()
                assert answer, f"{case} ended the process"
                name, kind, ends, most = json.loads(answer)
                yield name, kind, ends, most
        finally:
            child.kill()


def run(tmp_path: Path, kind: str, files: int, kinds: int) -> None:
    store = made(tmp_path / "made", kind)
    (tmp_path / "scratch").mkdir()
    names = sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_file())
    draw = random.Random(kind)
    names = draw.sample(names, min(files, len(names)))
    cases = [("", ""), *((name, each) for name in names for each in draw.sample(KINDS, kinds))]
    seen = 0
    for name, each, ends, most in meet(store, tmp_path / "scratch", cases):
        bad = {call: end for call, end in ends.items() if end.startswith("bad")}
        assert not bad, (name, each, bad)
        assert most < MAX_KIB, (name, each, most)
        if name.startswith(("commitlog", "checkpoint", "cqstore/deleted")) or not name:
            refused = ["regular file" in ends[call] for call in ("info", "check", "open")]
            assert refused == [bool(name)] * 3, (name, each, ends)
        seen += 1
    assert seen == len(cases) > 9


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "rocksdb"])
def test_whatever_lies_in_the_place_of_a_file_is_said(tmp_path: Path, kind: str) -> None:
    run(tmp_path, kind, 9, 1)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["file", "rocksdb", "double", "file moving", "rocksdb moving"])
def test_everything_in_the_place_of_every_file_is_said(tmp_path: Path, kind: str) -> None:
    run(tmp_path, kind, 1000, len(KINDS))


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"storePathRootDir=/tmp/store\n")
    check_folder(tmp_path)
    read_broker_conf(path)
    (tmp_path / "link").symlink_to(path)
    assert read_file(tmp_path / "link", 100) == path.read_bytes()
    put_in_place(path, kind)
    for place in (path, tmp_path / "link"):
        with pytest.raises(CorruptionError, match=r"not a regular file.*expected a regular file"):
            open_regular(place)
    with pytest.raises(StoreConfigError, match="not a properties file"):
        read_broker_conf(path)
    if kind != "folder":
        with pytest.raises(CorruptionError):
            check_folder(tmp_path)


def test_a_file_is_read_up_to_the_length_of_its_format(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(10))
    assert read_file(path, 10) == bytes(10)
    with pytest.raises(CorruptionError, match="at most 9 bytes, found 10 bytes"):
        read_file(path, 9)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptionError, match="too long"):
        read_broker_conf(path)
    assert MAX_CONFIG_BYTES < 1 << 30
