"""``python -m tests.interop.ha_long``: three followers of one master, and all that befalls them.

A follower of ours with queues in files, one with queues in RocksDB and RocketMQ's own slave follow
the same master, each through a proxy that cuts its connections at random bytes. Meanwhile messages
are put, followers are killed and started again, and so is the master. At the end all four logs are
one, byte for byte, and RocketMQ reads the same queues from all of them. ``--link WORDS`` puts a
link between master and proxies that loses, delays and reorders packets, in a network namespace of
its own. What is drawn depends on ``--seed``, when it happens on the machine. Java 17 and Maven are
needed.
"""

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.interop.ha_parts import (
    FAST,
    FILE,
    KINDS,
    ROCKETMQ,
    ROCKSDB,
    Masters,
    OurFollower,
    TheirFollower,
    digest_of_log,
    rows_read,
)
from tests.interop.rocketmq import RocketMQ
from tests.interop.test_interop import QUEUES
from tests.kit.commands import COMMAND
from tests.kit.cutting_proxy import CuttingProxy
from tests.kit.lossy_link import FAR, NEAR, Weather, lossy_link

_BYTES_A_MESSAGE = 330
"""About; so that the cuts last to the end."""
_NAMESPACE = "cqstore-ha-long"
_LONGER = 4
"""Puts of a round that is cut short, so that it is."""


@dataclass(frozen=True)
class Requested:
    """What is to happen."""

    messages: int
    rounds: int
    cuts: int
    """Of the connections of each of our followers; RocketMQ's waits five seconds after one, and
    gets a tenth of them."""
    seed: int
    is_ours: bool
    """Whether the master is ours."""
    weather: Weather | None = None
    """Of the link between master and proxies."""


@contextmanager
def proxies(requested: Requested) -> Iterator[dict[str, CuttingProxy]]:
    """A proxy a follower, all in one thread; where they lead is said later."""
    made = {}
    for at, name in enumerate(KINDS):
        cuts = max(1, requested.cuts // (10 if name == ROCKETMQ else 1))
        most = requested.messages * _BYTES_A_MESSAGE * 3 // 2 // cuts
        made[name] = CuttingProxy(0, cuts, most, seed=requested.seed + at)
        if requested.weather is not None:
            made[name].address, made[name].target = NEAR, FAR
    loop, ended, ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()

    async def serve() -> None:
        async with made[FILE].running(), made[ROCKSDB].running(), made[ROCKETMQ].running():
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait()
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


class Run:
    """One master and its followers in ``folder``."""

    def __init__(self, requested: Requested, folder: Path, rocketmq: RocketMQ) -> None:
        self._requested, self._folder, self._rocketmq = requested, folder, rocketmq
        self._draw = random.Random(requested.seed)
        self._done: Counter[str] = Counter()
        self._conf = folder / "broker.conf"
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in FAST.items()))

    def run(self) -> dict[str, object]:
        """Do all of it; return what was done and what came of it.

        Raises:
            AssertionError: the logs or the queues are not the same, or a process did not do well.
        """
        began = time.monotonic()
        with proxies(self._requested) as made, ExitStack() as stack:
            masters = Masters(
                self._rocketmq, self._requested.is_ours, self._folder / "master", self._conf,
                list(made.values()),
            )  # fmt: skip
            stack.callback(masters.end)
            masters.start()
            begin = masters.put(1)  # who comes later gets the last log file alone
            followers = self._followers(made, stack)
            for follower in followers.values():
                follower.start()
            for name, follower in followers.items():
                follower.followed(begin)
                if name != ROCKETMQ:
                    follower.start()
            self._befall(masters, followers)
            end = masters.put(1)
            for follower in followers.values():
                follower.followed(end)
                follower.end()
            connections = {name: proxy.connections for name, proxy in made.items()}
            starts, seconds = masters.starts, round(time.monotonic() - began)
        compared = self._compared(end, masters.put_messages)
        return {
            "master": "ours" if self._requested.is_ours else "RocketMQ 5.5.1",
            "seconds": seconds, "log bytes": end,
            "connections": connections, "times the master was started": starts,
            "done": dict(self._done), **compared,
        }  # fmt: skip

    def _followers(
        self, made: dict[str, CuttingProxy], stack: ExitStack
    ) -> dict[str, OurFollower | TheirFollower]:
        followers: dict[str, OurFollower | TheirFollower] = {
            name: OurFollower(made[name], self._folder / name, self._conf, backend)
            for name, backend in ((FILE, "file"), (ROCKSDB, "rocksdb"))
        }
        followers[ROCKETMQ] = TheirFollower(self._rocketmq, made[ROCKETMQ], self._folder / ROCKETMQ)
        for follower in followers.values():
            stack.callback(follower.end)
        return followers

    def _befall(self, masters: Masters, followers: dict[str, OurFollower | TheirFollower]) -> None:
        """Put all messages in rounds, and have something happen in each."""
        each = -(-self._requested.messages // self._requested.rounds // len(QUEUES))
        fates = [*(f"kill {name}" for name in KINDS), "kill the master", "restart the master", ""]
        while masters.put_messages < self._requested.messages:
            fate = self._draw.choice(fates)
            is_cut_short = fate == "kill the master"
            thread = masters.putting(each * (_LONGER if is_cut_short else 1))
            thread.join(self._draw.uniform(0.02, 1.0))  # somewhere in it
            if is_cut_short:
                assert masters.running is not None
                self._done["the master was killed while it put"] += thread.is_alive()
                masters.running.kill()
            thread.join()
            if fate.endswith("the master"):
                masters.end()
                masters.start()
            elif fate:
                follower = followers[fate.removeprefix("kill ")]
                follower.kill()
                follower.start()
            self._done[fate or "nothing"] += 1
            sys.stderr.write(f"{masters.put_messages:,} put; {fate or 'nothing'}\n")

    def _compared(self, end: int, acknowledged: int) -> dict[str, object]:
        roots = {"master": "default"} | KINDS
        digests = {name: digest_of_log(self._folder / name, end) for name in roots}
        assert len(set(digests.values())) == 1, digests
        for name in (FILE, ROCKSDB):
            done = subprocess.run(
                [*COMMAND, "check", self._folder / name],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        rows = {
            name: rows_read(self._rocketmq, self._folder / name, kind)
            for name, kind in roots.items()
        }
        for name, found in rows.items():
            assert found == rows["master"], name
        messages = sum(int(row["count"]) for row in rows["master"])
        assert messages >= acknowledged
        return {
            "messages": messages,
            "acknowledged": acknowledged,
            "SHA-256 of all four logs": digests["master"],
        }


def in_namespace(words: Sequence[str]) -> int:
    """Run this once more with ``words`` in a network namespace; return its exit code."""
    inside = ["ip", "netns", "exec", _NAMESPACE]
    subprocess.run(["ip", "netns", "add", _NAMESPACE], check=True)
    try:
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        command = [*inside, sys.executable, "-m", "tests.interop.ha_long", *words, "--inside"]
        return subprocess.run(command, check=False).returncode
    finally:
        subprocess.run(["ip", "netns", "del", _NAMESPACE], check=True)


def reported(requested: Requested, rocketmq: RocketMQ) -> dict[str, object]:
    """Return what was done, and what came of it, with what befell the link."""
    link = (
        nullcontext()
        if requested.weather is None
        else lossy_link(requested.weather, requested.seed)
    )
    with tempfile.TemporaryDirectory(prefix="cqstore-ha-") as folder, link as packets:
        found = Run(requested, Path(folder), rocketmq).run()
        if packets is not None:
            assert min(packets["lost"], packets["overtaken"]) > 0, packets
            found["link"] = dict(packets)
        return found


def main(words: Sequence[str]) -> int:
    """Run it with RocketMQ's master and with ours; return 1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.ha_long")
    parser.add_argument("--messages", type=int, default=1_000_000, help="for each master")
    parser.add_argument("--rounds", type=int, default=24, help="in each something happens")
    parser.add_argument("--cuts", type=int, default=100, help="of our followers' connections")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--master", choices=["ours", "rocketmq"], help="this one alone")
    parser.add_argument("--link", type=Weather.of, help="as loss=1,delay=5,jitter=2; needs root")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.link is not None and not given.inside:
        return in_namespace(words)
    rocketmq = RocketMQ.build("5.5.1")
    for master in [given.master] if given.master else ["rocketmq", "ours"]:
        requested = Requested(
            given.messages, given.rounds, given.cuts, given.seed, master == "ours", given.link
        )
        for what, value in reported(requested, rocketmq).items():
            sys.stdout.write(f"{what}: {value}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
