"""Verbs that only look do so on a mount that is read-only: a snapshot, a disk of another machine.

Where no namespace can be made these tests fail, unless ``CQSTORE_NO_MOUNT=1`` says that this is
known: then they are skipped.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.faults.test_full_disk import PRIVATE
from tests.kit.operating import write_config
from tests.kit.tree import unchanged

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 16, rocksdb_memory_bytes=16 << 20)
MOUNT = (
    'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && ! touch "$1/x" 2>/dev/null'
    ' && shift && exec "$@"'
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [pytest.param("file", marks=pytest.mark.long), "rocksdb",
     pytest.param("both", marks=pytest.mark.long)],
)  # fmt: skip
def test_what_only_looks_needs_no_right_to_write(tmp_path: Path, kind: str) -> None:
    if os.environ.get("CQSTORE_NO_MOUNT") == "1":
        pytest.skip("CQSTORE_NO_MOUNT=1: no mount namespaces here")
    root = tmp_path / kind
    both = {"rocksdb_cq_double_write_enable": True} if kind == "both" else {}
    config = CONFIG.model_copy(update=both)
    with MessageStore.open(root, config, backend=None if both else kind) as store:
        for number in range(300):
            assert store.put_message(Message("t", b"%d" % number * 50, 0, {"KEYS": "k"})).ok
    write_config(root, "topics.json", {"topicConfigTable": {"t": {"topicName": "t"}}})
    write_config(root, "consumerOffset.json", {"offsetTable": {"t@g": {0: 100}}})
    with unchanged(root):
        command = [sys.executable, "-m", "tests.cli.read_only_mount", str(root)]
        done = subprocess.run(
            [*PRIVATE, "sh", "-c", MOUNT, "sh", str(root), *command],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
