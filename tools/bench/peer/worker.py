"""Our side, as ``Peer.java`` is RocketMQ's: ``python -m tools.bench.peer.worker dir=… queues=…``.

A line of work on standard input, such as ``put 1000 threads=4``, is answered by one of figures.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from cqstore import FlushDiskType, MessageStore, StoreConfig
from tools.bench.peer.asks import Reads
from tools.bench.peer.puts import Figures, Puts
from tools.bench.peer.queues import Queues
from tools.bench.peer.roles import Roles

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Worker:
    """One store and the work on it."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings
        self._queues = Queues(int(settings.get("queues", "8")))
        self._roles = Roles(settings)
        self._store: MessageStore
        self._puts: Puts
        self._reads: Reads

    def done(self, words: Sequence[str]) -> Figures:
        """Do the work of one line; return what it took."""
        if words[0] == "open":
            return self._open()
        count = int(words[1]) if len(words) > 1 else 0
        options = _settings(words[2:])
        size = int(options.get("size", "32"))
        works: dict[str, Callable[[], Figures]] = {
            "totals": self._totals,
            "spent": self._spent,
            "followed": lambda: self._roles.followed(self._store, count, self._puts.caught_up),
            "close": self._close,
            "put": lambda: self._puts.single(count, int(options.get("threads", "1"))),
            "flight": lambda: self._puts.in_flight(count, int(options.get("puts", "1"))),
            "list": lambda: self._puts.lists(count, size),
            "batch": lambda: self._puts.batches(count, size),
            "paced": lambda: self._puts.paced(count, int(options.get("rate", "10000"))),
            "delete": self._puts.delete_topics,
            "pull": lambda: self._reads.pull(count),
            "gather": lambda: self._reads.gather(count),
            "decode": lambda: self._reads.decode(count),
            "time": lambda: self._reads.time(count),
            "query": lambda: self._reads.query(count),
        }
        return works[words[0]]()

    def _open(self) -> Figures:
        """Open the store, and what puts and reads in it; return what that took."""
        flush = FlushDiskType(self._settings.get("flush", "ASYNC_FLUSH"))
        config = StoreConfig(
            flush_disk_type=flush, clean_file_forcibly_enable=False,
            handle_bus_errors=True,  # as the JVM does, unasked
        )  # fmt: skip
        config = self._roles.config(config)
        backend = self._settings.get("backend", "file")
        cpu, begin = time.process_time(), time.perf_counter()
        self._store = MessageStore.open(
            self._settings["dir"], config, backend=backend, replicas=self._roles.replicas
        )
        seconds, spent = time.perf_counter() - begin, time.process_time() - cpu
        body, keys = int(self._settings.get("body", "128")), "keys" in self._settings
        self._puts = Puts(self._store, self._queues, body, keys=keys)
        self._reads = Reads(self._store, self._queues)
        figures = {
            "count": 1, "seconds": seconds, "cpu_seconds": spent, "resident_bytes": _resident(),
        }  # fmt: skip
        self._roles.begin(self._store)
        return figures | {"port": self._roles.port}

    def _close(self) -> Figures:
        self._store.close()
        return {"count": 1}

    def _spent(self) -> Figures:
        end = self._store.max_phy_offset()
        return {"cpu_seconds": time.process_time(), "log_end": end}

    def _totals(self) -> Figures:
        units = sum(span.max_offset - span.min_offset for span in self._store.queue_spans())
        end = self._store.max_phy_offset()
        return {"units": units, "log_end": end, "resident_bytes": _resident()}


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def _settings(words: Sequence[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def main() -> None:
    """Answer lines until they end; what goes wrong is the last answer."""
    worker = Worker(_settings(sys.argv[1:]))
    try:
        for line in sys.stdin:
            print(json.dumps(worker.done(line.split())), flush=True)
    except Exception as exc:  # noqa: BLE001 - it is reported to the caller
        traceback.print_exc()
        print(json.dumps({"failed": f"{type(exc).__name__}: {exc}"}), flush=True)
    finally:
        sys.stderr.flush()
        os._exit(0)  # the store is not closed unless a line says so, as on the other side


if __name__ == "__main__":
    main()
