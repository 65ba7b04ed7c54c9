"""An event loop with a clock of its own and a network in memory: whole days of asyncio in a second.

What is random is drawn from one seed: how bytes are cut, how long they take, how long a step in a
thread does. So a story runs the same way again. Only threads that are not the loop's own, those of
a store, keep the machine's time.

The network is TCP's: bytes of a connection come in order or not at all. What a lost packet looks
like there is a delay, or a connection that is gone.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

_SECOND_TRY = 3.0
"""Seconds after which a packet that was lost has come, about."""
_MAX_WAITING = 64 << 10
"""Bytes on their way behind which a writer has to wait."""


class SimLoop(asyncio.BaseEventLoop):
    """Sleeps by setting its clock forward. Steps in threads are run by the loop itself."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.draw = random.Random(seed)
        self._now = 1000.0
        self._clock_resolution = 1e-6
        self._selector = self
        self.net = Network(self)
        self.steps = 0
        """In threads, that were run."""

    def time(self) -> float:
        """Return seconds."""
        return self._now

    def select(self, timeout: float | None) -> list[object]:
        """Let time go on to where something is to happen."""
        if timeout is None:
            raise RuntimeError("no task waits for anything that could still come")
        self._now += timeout
        return []

    def _process_events(self, _: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nothing has to be woken up."""

    @contextmanager
    def clock_of(self, *modules: ModuleType) -> Iterator[None]:
        """Let ``time.monotonic`` be this loop's in ``modules``, all else as it is."""
        ours = SimpleNamespace(monotonic=self.time, time=time.time, sleep=None)
        with ExitStack() as patched:
            for module in modules:
                patched.enter_context(mock.patch.object(module, "time", ours))
            yield

    def run_in_executor(  # type: ignore[override]
        self, _: object, step: Callable[..., Any], *given: Any
    ) -> "asyncio.Future[Any]":
        """Run ``step`` after a while, whole; the end of the wait for it does not stop it."""
        future, done = self.create_future(), asyncio.Event()

        def run() -> None:
            self.steps += 1
            try:
                found = step(*given)
            except BaseException as exc:  # noqa: BLE001 - it is the waiting one's
                if not future.done():
                    future.set_exception(exc)
            else:
                if not future.done():
                    future.set_result(found)
            done.set()

        self.call_later(self.draw.choice((0, 0, 0.001, 0.05, 1.0)), run)
        return future

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: object
    ) -> tuple["Line", asyncio.Protocol]:
        """Connect to a server of this loop."""
        return await self.net.connect(factory, host, port)

    async def create_server(  # type: ignore[override]
        self, factory: Callable[[], asyncio.Protocol], *_: object, **__: object
    ) -> "Server":
        """Listen at a port that was never used."""
        return self.net.listen(factory)


class Server:
    """As ``asyncio.Server``, as far as it is asked for."""

    def __init__(self, net: "Network", port: int, factory: Callable[[], asyncio.Protocol]) -> None:
        self.port, self.factory = port, factory
        self._net = net
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        """Return where it listens."""
        return "sim", self.port

    def close(self) -> None:
        """Take no more connections."""
        self._net.servers.pop(self.port, None)

    async def wait_closed(self) -> None:
        """Return: it is."""


class Network:
    """Servers and connections of one loop, and what may go wrong with them."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.servers: dict[int, Server] = {}
        self.lines: list[Line] = []
        self.loss = 0.0
        """Share of packets that are lost, and sent again."""
        self.latency = (0.0005, 0.01)
        self.apart_until = 0.0
        """Until then nothing comes through."""
        self.lost = self.cut_lines = self.refused = 0
        self._port = 10_000

    def listen(self, factory: Callable[[], asyncio.Protocol]) -> Server:
        """Return a new server."""
        self._port += 1
        server = self.servers[self._port] = Server(self, self._port, factory)
        return server

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple["Line", asyncio.Protocol]:
        """Connect; raises as a system does without a listener, waits where nothing comes."""
        await asyncio.sleep(self.delay())
        if port not in self.servers:
            self.refused += 1
            raise ConnectionRefusedError(f"nothing listens at {host}:{port}")
        here, there = factory(), self.servers[port].factory()
        one, other = Line(self._loop, self, here), Line(self._loop, self, there)
        one.other, other.other = other, one
        self.lines = [line for line in self.lines if not line.is_over]
        self.lines += [one, other]
        there.connection_made(other)
        here.connection_made(one)
        return one, here

    def delay(self) -> float:
        """Return how long a packet takes that is sent now."""
        draw, now = self._loop.draw, self._loop.time()
        seconds = draw.uniform(*self.latency)
        while draw.random() < self.loss:
            self.lost += 1
            seconds += draw.uniform(0.2, _SECOND_TRY)
        return seconds + max(self.apart_until - now, 0.0)

    def part(self, seconds: float) -> None:
        """Let nothing come through for a while; what is on its way comes later."""
        self.apart_until = max(self.apart_until, self._loop.time() + seconds)

    def cut(self) -> int:
        """Break every connection off, with what is on its way; return how many."""
        there = [line for line in self.lines if not line.is_over]
        for line in there:
            line.abort()
        self.cut_lines += len(there) // 2
        return len(there) // 2


class Line(asyncio.Transport):
    """One end of a connection."""

    other: "Line"

    def __init__(self, loop: SimLoop, net: Network, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop, self._net, self._protocol = loop, net, protocol
        self._closing = self.is_over = self._paused = self._full = False
        self._waiting: deque[bytes] = deque()  # came, and is not taken yet
        self._packets: deque[Callable[[], None]] = deque()
        self._on_its_way, self._high = 0, _MAX_WAITING
        self._last = 0.0  # when the last packet that was sent arrives
        self._ends = False  # the other end has closed, behind what is waiting

    # ---- what asyncio asks for

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("sim", 1) if name in {"peername", "sockname"} else default

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self._hand_on)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _MAX_WAITING if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._on_its_way

    # ---- sending

    def write(self, data: Any) -> None:
        """Send; cut anywhere, each part a packet."""
        if self._closing:
            return
        draw, at, rest = self._loop.draw, 0, bytes(data)
        while at < len(rest):
            size = draw.choice((1, 7, 60, 1400, 1 << 20))
            part = rest[at : at + size]
            at += size
            self._on_its_way += len(part)
            self._send(partial(self._arrive, part))
        if self._on_its_way > self._high and not self._full:
            self._full = True
            self._protocol.pause_writing()

    def _send(self, what: Callable[[], None]) -> None:
        self._packets.append(what)
        self._last = max(self._last, self._loop.time() + self._net.delay())
        self._loop.call_at(self._last, self._pass_on)

    def _pass_on(self) -> None:
        """Let the next packet arrive: whichever one was to come now, they come in order."""
        if (left := self._net.apart_until - self._loop.time()) > 0:
            self._last = max(self._last, self._net.apart_until)
            self._loop.call_later(left, self._pass_on)
        else:
            self._packets.popleft()()

    def _arrive(self, part: bytes) -> None:
        if self.is_over or self.other.is_over:
            return
        self._on_its_way -= len(part)
        if self._full and self._on_its_way <= self._high // 4:
            self._full = False
            self._protocol.resume_writing()
        self.other._waiting.append(part)
        self.other._hand_on()

    def _hand_on(self) -> None:
        while self._waiting and not self._paused and not self.is_over:
            self._protocol.data_received(self._waiting.popleft())
        if self._ends and not self._waiting and not self.is_over:
            self._protocol.eof_received()
            self._lose(None)

    # ---- ending

    def close(self) -> None:
        """Send what is written, then end."""
        if not self._closing:
            self._closing = True
            self._send(self._end)

    def _end(self) -> None:
        self.other._ends = True
        self.other._hand_on()
        self._lose(None)

    def abort(self) -> None:
        """End at once; the other end hears of it later."""
        self._closing = True
        if not self.is_over:
            self._loop.call_later(
                self._net.delay(), self.other._lose, ConnectionResetError("reset by peer")
            )
            self._lose(None)

    def _lose(self, exc: Exception | None) -> None:
        if not self.is_over:
            self.is_over = self._closing = True
            self._waiting.clear()
            self._loop.call_soon(self._protocol.connection_lost, exc)
