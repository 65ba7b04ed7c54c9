"""The processes of the long run: masters and followers that are killed and started again."""

import hashlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.rocketmq import Master, RocketMQ, Slave
from tests.interop.started import Row
from tests.interop.test_interop import QUEUES
from tests.kit.commands import COMMAND
from tests.kit.cutting_proxy import CuttingProxy

SIZES = {
    "mappedFileSizeCommitLog": 16 << 20, "mappedFileSizeConsumeQueue": 200_000,
    "maxHashSlotNum": 50_000, "maxIndexNum": 200_000,
}  # fmt: skip
FAST = {**SIZES, "haSendHeartbeatInterval": 700}
ROCKETMQ, FILE, ROCKSDB = "rocketmq-slave", "ours-file", "ours-rocksdb"
KINDS = {ROCKETMQ: "default", FILE: "default", ROCKSDB: "defaultRocksDB"}
"""Of each follower's queues, as RocketMQ names them."""
LIMIT_SECONDS = 900
_CHUNK = 1 << 22


@contextmanager
def our_master(root: Path, conf: Path) -> Iterator[Master]:
    """Start a master of ours, see ``ha_child``; close it at the end."""
    words = [sys.executable, "-m", "tests.interop.ha_child", str(root), str(conf)]
    with (
        (root.parent / "master.errors").open("ab") as errors,
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            cwd=Path(__file__).parents[2],
        ) as process,
    ):  # fmt: skip
        try:
            master = Master(process)
            yield master
            master.close()
        finally:
            process.kill()


@dataclass
class Masters:
    """The master of one store, of which one process runs at a time; followers come by proxies."""

    rocketmq: RocketMQ
    is_ours: bool
    root: Path
    conf: Path
    proxies: list[CuttingProxy]
    starts: int = 0
    put_messages: int = 0
    """That were acknowledged."""
    _stack: ExitStack = field(default_factory=ExitStack)
    running: Master | None = None

    def start(self) -> Master:
        """Start it; the proxies lead there from now on."""
        opened: AbstractContextManager[Master]
        if self.is_ours:
            opened = our_master(self.root, self.conf)
        else:
            opened = self.rocketmq.serving(self.root, "default", QUEUES, **FAST)
        self.running = self._stack.enter_context(opened)
        self.starts += 1
        for proxy in self.proxies:
            proxy.target_port = self.running.port
        return self.running

    def end(self) -> None:
        """Let it close its store, unless it was killed."""
        self._stack.close()
        self.running = None

    def put(self, count: int) -> int:
        """Put ``count`` messages to each queue; return where the log ends then.

        Raises:
            AssertionError: it was killed meanwhile.
        """
        assert self.running is not None
        answer = self.running.put(count)
        assert set(answer["statuses"]) == {"PUT_OK"}, answer
        self.put_messages += answer["statuses"]["PUT_OK"]
        return int(answer["end"])

    def putting(self, count: int) -> threading.Thread:
        """Put in a thread, which ends without a word where the master is killed."""

        def work() -> None:
            try:
                self.put(count)
            except (AssertionError, OSError, ValueError):
                if not self._is_killed():
                    raise

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def _is_killed(self) -> bool:
        return self.running is None or self.running.is_killed


class OurFollower:
    """``cqstore follow`` in a process."""

    def __init__(self, proxy: CuttingProxy, root: Path, conf: Path, backend: str) -> None:
        self._words = [
            *COMMAND, "follow", f"127.0.0.1:{proxy.port}", str(root), "--config", str(conf),
            "--backend", backend,
        ]  # fmt: skip
        self._errors = root.parent / f"{root.name}.errors"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start it, with further words."""
        with self._errors.open("ab") as errors:
            process = subprocess.Popen(
                [*self._words, *words], stdout=subprocess.DEVNULL, stderr=errors
            )
        self._process = process
        return process

    def kill(self) -> None:
        """Kill it as a power cut would, but for the disk."""
        self._end(signal.SIGKILL)

    def end(self) -> None:
        """Have it close its store."""
        self._end(signal.SIGTERM)

    def followed(self, end: int) -> None:
        """End it, and start it anew until its log has come to ``end``."""
        self.end()
        code = self.start("--until", str(end)).wait(LIMIT_SECONDS)
        assert code == 0, self._errors.read_text(encoding="utf-8")[-2000:]

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        before = self._process.poll()
        assert before in {None, 0}, self._errors.read_text(encoding="utf-8")[-2000:]
        self._process.send_signal(number)
        self._process.wait(LIMIT_SECONDS)
        self._process = None


class TheirFollower:
    """RocketMQ's own slave in a process."""

    def __init__(self, rocketmq: RocketMQ, proxy: CuttingProxy, root: Path) -> None:
        self._rocketmq, self._proxy, self._root = rocketmq, proxy, root
        self._stack = ExitStack()
        self._slave: Slave | None = None

    def start(self) -> None:
        """Start it."""
        kind = KINDS[ROCKETMQ]
        following = self._rocketmq.following(self._proxy.port, self._root, kind, QUEUES, **FAST)
        self._slave = self._stack.enter_context(following)

    def kill(self) -> None:
        """Kill it as a power cut would, but for the disk."""
        assert self._slave is not None
        self._slave.kill()
        self._stack.close()

    def end(self) -> None:
        """Have it close its store."""
        self._stack.close()

    def followed(self, end: int) -> None:
        """Wait until its log has come to ``end``."""
        assert self._slave is not None
        assert self._slave.followed(end) == end


def digest_of_log(root: Path, end: int) -> str:
    """Return SHA-256 of the log's bytes from 0 to ``end``."""
    digest = hashlib.sha256()
    files = sorted((root / "commitlog").iterdir())
    assert files[0].name == f"{0:020d}"
    for path in files:
        left = end - int(path.name)
        with path.open("rb") as file:
            while left > 0 and (data := file.read(min(left, _CHUNK))):
                digest.update(data)
                left -= len(data)
    return digest.hexdigest()


def rows_read(rocketmq: RocketMQ, root: Path, kind: str) -> list[Row]:
    """Return what RocketMQ pulls of each queue: ends, count, digest of places."""
    return rocketmq.read(root, kind, QUEUES, **SIZES)
