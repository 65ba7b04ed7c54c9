"""A story of one follower and its master on one seed, and what has to hold at each moment of it.

The master grows, is cut off, goes away, comes back with less and other records; packets are lost,
the network parts; the follower is killed and starts over from what its files have. What holds:

* nothing is acknowledged that is not in the follower's log, and the same in the master's;
* its log is always the begin of a log that the master has had;
* if the master has lost nothing that the follower has, they end with one log and its queues;
* if it has, the follower says so, adds nothing, and after ``rejoin`` they end with one log.
"""

import asyncio
import random
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import cqstore.replication.feed.connection
from cqstore.replication.errors import DivergedError
from cqstore.replication.follow import default_protocol as default_talk
from cqstore.replication.follow import master_session as session
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import Timing
from cqstore.replication.ha.rejoin import rejoin
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.crash_images import crash_image
from tests.kit.log_bytes import log_of
from tests.kit.served import served
from tests.kit.sim_loop import SimLoop
from tests.kit.sim_masters import FeedingMaster, Master, ModelMaster

LIMIT_SECONDS = 5_000.0
"""Of the loop's own time."""
_STEPS = 14
Queues = dict[QueueKey, list[tuple[int, int, int]]]


@dataclass(frozen=True)
class Logs:
    """Two logs that are one up to some record, as stores that were closed."""

    config: StoreConfig
    first: bytes
    second: bytes
    parts_at: int
    starts: list[int]
    """Of the records of the first one."""
    roots: tuple[Path, Path]

    def queues(self, which: int) -> Queues:
        """Return what the store with all of that log serves."""
        return {key: units for key, units in served(self.roots[which]).items() if units}


@dataclass
class Compared:
    """What was looked at; each count is a sum over seeds."""

    seeds: int = 0
    reports: int = 0
    """Looked at when they came."""
    acknowledged_bytes: int = 0
    """Compared with the master's log, byte by byte."""
    log_bytes: int = 0
    """Of logs that were compared at the end."""
    units: int = 0
    """Of queues that were compared at the end."""
    connections: int = 0
    cut: int = 0
    lost_packets: int = 0
    partitions: int = 0
    crashes: int = 0
    restarts: int = 0
    refusals: int = 0
    """Of logs that had parted."""
    rejoined: int = 0
    refused_in_vain: int = 0
    """Followers that gave up though the master had their next bytes; begun again they go on."""
    requested_beyond: int = 0
    """Connections that began behind the end of the master's log."""
    seconds: int = 0
    """That passed in the stories."""

    def add(self, other: "Compared") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass
class Story:
    """One seed."""

    seed: int
    logs: Logs
    folder: Path
    feeding: bool = False
    """Our feeder is the master, else RocketMQ's wire by hand."""
    found: Compared = field(default_factory=Compared)

    def run(self) -> Compared:
        """Run it; what does not hold is an ``AssertionError``."""
        loop = SimLoop(self.seed)
        self._draw = random.Random(f"story {self.seed}")
        self._loop, self._faults = loop, list[BaseException]()
        self._is_open = False
        loop.set_exception_handler(self._note_fault)
        with (
            loop.clock_of(session, default_talk, cqstore.replication.feed.connection),
            asyncio.Runner(loop_factory=lambda: loop) as runner,
        ):
            begun = loop.time()
            try:
                runner.run(self._within_limit())
            except BaseException:
                if self._is_open:
                    self._store.close()
                if self._faults:
                    raise self._faults[0] from None
                raise
            self.found.seconds += int(loop.time() - begun)
        if self._faults:
            raise self._faults[0]
        found, net = self.found, loop.net
        found.seeds += 1
        found.cut += net.cut_lines
        found.lost_packets += net.lost
        return found

    async def _within_limit(self) -> None:
        self._whole = asyncio.current_task()
        async with asyncio.timeout(LIMIT_SECONDS):
            await self._story()

    def _note_fault(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Keep what a task has raised that is not awaited: a report that does not hold."""
        self._faults.append(context.get("exception") or AssertionError(context["message"]))

    # ---- what is to hold

    def _received(self, offset: int, *, is_request: bool) -> None:
        """Look at a report in the moment in which it comes; what does not hold ends the story."""
        try:
            self._look_at(offset, is_request=is_request)
        except AssertionError as exc:
            self._faults.append(exc)
            assert self._whole is not None
            self._whole.cancel()
            raise

    def _look_at(self, offset: int, *, is_request: bool) -> None:
        self.found.reports += 1
        if is_request:
            self.found.connections += 1
            self.found.requested_beyond += offset > self._master.end
            return
        if offset <= 1:
            return
        own = self._own()
        assert offset <= len(own), f"{offset} acknowledged, the log here ends at {len(own)}"
        lost = self._lost_at if self._refusable else None
        assert lost is None or offset <= lost, f"{offset} acknowledged, the master has lost it"
        assert own[:offset] == self._master_log[:offset], f"{offset} acknowledged, of another log"
        self.found.acknowledged_bytes += offset

    def _own(self) -> bytes:
        """Return the follower's log; of one that was killed what it had: its words still come."""
        if not self._is_open:
            return self._had
        return log_of(self._store) if self._store.min_phy_offset() == 0 else b""

    # ---- what happens

    async def _story(self) -> None:
        draw, logs = self._draw, self.logs
        self._root = self.folder / "own-0"
        self._lost_at: int | None = None
        self._refusable = False
        self._master_log = b""
        batch = draw.choice((1, 100, 700, 32768))
        self._master: Master = (
            FeedingMaster(self._received, batch, logs.config, self.folder / "feeding")
            if self.feeding else ModelMaster(self._received, batch)
        )  # fmt: skip
        async with self._master:
            self._open()
            # From its first byte on: an empty one would get the last file alone.
            self._grow_to(self.logs.starts[1])
            await self._caught_up()
            for _ in range(_STEPS):
                await asyncio.sleep(draw.expovariate(1 / 8))  # of the loop's time, as all here
                await self._happen()
                if self._task.done():
                    await self._caught_up()
                if self._task.done():
                    break
            await self._end()

    async def _happen(self) -> None:
        draw, net = self._draw, self._loop.net
        what = draw.choice(
            ("grow", "grow", "grow", "cut", "part", "lose", "calm", "crash", "restart", "come back")
        )
        if what == "grow":
            self._grow()
        elif what == "cut":
            net.cut()
        elif what == "part":
            self.found.partitions += 1
            net.part(draw.choice((0.5, 4.0, 21.0, 90.0)))
        elif what == "lose":
            net.loss = draw.choice((0.05, 0.3))
        elif what == "calm":
            net.loss = 0.0
        elif what == "crash":
            await self._crash()
        elif what == "restart":
            self.found.restarts += 1
            net.cut()
            self._master.come_back_with(self._master_log[: self._master.end])
        elif self._lost_at is None and len(self._master_log) > self.logs.parts_at:
            self._come_back_without_its_last_records()

    def _log(self) -> bytes:
        """Return the log that the master grows along."""
        return self.logs.first if self._lost_at is None else self.logs.second

    def _grow(self) -> None:
        ends = [at for at in self.logs.starts if at > self._master.end] or [len(self._log())]
        self._grow_to(self._draw.choice(ends[:25]))

    def _grow_to(self, end: int) -> None:
        self._master.append(self._log()[self._master.end : end])
        self._master_log = self._log()[: self._master.end]

    def _come_back_without_its_last_records(self) -> None:
        self.found.restarts += 1
        self._loop.net.cut()
        self._lost_at = self.logs.parts_at
        self._refusable = self._store.max_phy_offset() > self.logs.parts_at
        self._master_log = self.logs.second[: self.logs.parts_at]
        self._master.come_back_with(self._master_log)

    # ---- the follower

    def _open(self) -> None:
        self._store = MessageStore.open(self._root, self.logs.config, housekeeping=False)
        self._is_open = True
        self._begin()

    def _begin(self) -> None:
        self._follower = Follower(
            self._store, "sim", self._master.port, timing=Timing(),
            verify_tail_bytes=self._draw.choice((1, 300, 64 << 10)),
        )  # fmt: skip
        self._task = asyncio.get_running_loop().create_task(self._follower.run())

    async def _crash(self) -> None:
        """Kill the follower: what its files have is what it begins with again."""
        self.found.crashes += 1
        own = self._own()
        again = self.folder / f"own-{self.found.crashes}"
        crash_image(self._root, again)
        await self._stop()
        self._root = again
        self._open()
        assert self._own() == own, "a kill has lost bytes of the log"

    async def _stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._had, self._is_open = self._own(), False
        self._store.close()

    async def _caught_up(self) -> None:
        while not self._task.done():
            progress = self._follower.progress
            if progress.caught_up and progress.end == self._master.end:
                return
            await asyncio.sleep(0.5)
        if self._is_in_vain(self._task.exception()):
            self.found.refused_in_vain += 1
            self._begin()
            await self._caught_up()

    def _is_in_vain(self, error: BaseException | None) -> bool:
        """Return whether a follower gave up whose next bytes the master has.

        The master had nothing more, then filled its file, all while the follower asked where the
        last file begins. Begun again it goes on.
        """
        return not self._refusable and "If the master lost records, keep this log" in str(error)

    # ---- the end

    async def _end(self) -> None:
        net = self._loop.net
        net.loss, net.apart_until = 0.0, 0.0
        self._grow_to(len(self._log()))
        await self._caught_up()
        if self._task.done():
            error = self._task.exception()
            assert self._refusable, f"refused without a reason: {error}"
            assert isinstance(error, DivergedError), error
            await self._rejoin()
        else:
            assert not self._refusable, "went on with a master that has lost what is here"
        await self._stop()
        which = 0 if self._lost_at is None else 1
        assert self._had == self._log(), "the logs are not one"
        self.found.log_bytes += len(self._log())
        queues = {key: units for key, units in served(self._root).items() if len(units) > 1}
        assert queues == self.logs.queues(which), "the queues are not the log's"
        self.found.units += sum(map(len, queues.values()))

    async def _rejoin(self) -> None:
        """Cut the log back as an operator does, and follow."""
        self.found.refusals += 1
        own = self._own()
        assert own == self.logs.first[: len(own)], "something was added to a log that has parted"
        await self._stop()
        done = rejoin(self._root, self.logs.roots[1], self.logs.config)
        assert (done.phy_offset, done.done) == (self.logs.parts_at, True)
        self.found.rejoined += 1
        self._refusable = False
        self._open()
        await self._caught_up()
        assert not self._task.done(), self._task.exception()
