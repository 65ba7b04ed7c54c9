"""A process is killed in the middle of a list: after each piece that the log takes of it."""

import shutil
from pathlib import Path

import pytest

from store.config import StoreConfig
from store.log.mapped_file import MappedFile
from store.queue.backends import backend_names
from store.record.message import Message
from store.service.message_store import MessageStore
from tests.kit.crash_images import crash_image
from tests.kit.long_way import go_the_long_way

CONFIG = StoreConfig(
    mapped_file_size_commit_log=16_384, mapped_file_size_consume_queue=400,
    rocksdb_memory_bytes=16 << 20, max_hash_slot_num=10, max_index_num=30,
)  # fmt: skip
BODIES = [b"%d" % number * 40 for number in range(9)]
KEPT, PUT = BODIES[:2], BODIES[2:]


class Steps:
    """The log's map, of which what the file holds is kept after each write."""

    def __init__(self, file: MappedFile) -> None:
        self._map = file.map()
        self.guard = self._map.guard
        self.seen: list[bytes] = []

    def __setitem__(self, span: slice, data: bytes) -> None:
        self._map[span] = data
        self.seen.append(self._map[:])


@pytest.mark.parametrize("backend", backend_names())
def test_a_kill_in_the_middle_of_a_list_leaves_its_first_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        for body in KEPT:
            assert store.put_message(Message("t", body)).ok
        store.flush()
        crash_image(root, tmp_path / "killed")
        (log,) = store.commit_log.files
        steps = Steps(log)
        go_the_long_way(store)  # in the core no step can be told from the next one
        with monkeypatch.context() as patch:
            patch.setattr(MappedFile, "target", lambda _: steps)
            assert all(result.ok for result in store.put_messages([Message("t", b) for b in PUT]))
    found = []
    for number, data in enumerate(steps.seen):
        again = shutil.copytree(tmp_path / "killed", tmp_path / f"{number}")
        (again / "commitlog" / log.path.name).write_bytes(data)
        with MessageStore.open(again, CONFIG, backend=backend) as store:
            bodies = [message.body for message in store.get_message("t", 0, 0, 32).messages()]
            assert bodies == BODIES[: len(bodies)]
            found.append(len(bodies) - len(KEPT))
    assert found == list(range(len(PUT) + 1))
