"""A process that writes a log as it is told: ``python -m tests.kit.beside_child DIR BACKEND``.

It reads a line of words, does that, and answers with a line: what a reader beside it may see then.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from cqstore.embedded.log import EmbeddedLog
from cqstore.embedded.open_log import open_log
from tests.kit.quiet_config import quiet_config

FILE_BYTES = 1 << 14
CONFIG = quiet_config(
    mapped_file_size_commit_log=FILE_BYTES, mapped_file_size_consume_queue=20 * 50,
    rocksdb_memory_bytes=16 << 20, max_index_num=200, max_hash_slot_num=50,


)  # fmt: skip


class Writer:
    """The process, as a test sees it."""

    def __init__(self, root: Path, backend: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.beside_child", str(root), backend],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip

    def ask(self, *words: object) -> None:
        """Have it do something; ``await_answer`` returns when it is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def await_answer(self) -> str:
        """Wait until it has done what it was asked last."""
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        assert answer, "the writer has ended"
        return answer

    def do(self, *words: object) -> str:
        """Have it do something, and wait for that."""
        self.ask(*words)
        return self.await_answer()

    def kill(self) -> None:
        """End it as a kill does."""
        self._process.kill()
        self._end()

    def close(self) -> None:
        """Have it close the log and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end()

    def _end(self) -> None:
        self._process.wait(120)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def put(log: EmbeddedLog, topic: str, first: str, count: str, size: str = "0") -> None:
    for number in range(int(first), int(first) + int(count)):
        log.put(topic, b"%d" % number + b" " * int(size))


def expire(log: EmbeddedLog, _: str = "") -> None:
    """Delete all log files but the last one."""
    log.store.flush()
    log.store.delete_expired_files(log.store.max_phy_offset())


def main(root: str, backend: str) -> None:
    with open_log(root, backend=backend, config=CONFIG, queues=3) as log:
        does: dict[str, Any] = {
            "put": put, "expire": expire,
            "delete": lambda log, topic: log.store.delete_topic(topic),
            "flush": lambda log: log.flush(),
            "visible": lambda log, topic: list(log.read(topic)),
        }  # fmt: skip
        for line in sys.stdin:
            verb, *words = line.split()
            does[verb](log, *words)
            sys.stdout.write("done\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
