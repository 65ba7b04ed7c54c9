"""Damaged inputs, made from real ones by a seeded draw, and the loop that feeds them in.

What is promised of any bytes whatever: only errors of the store's tree leave, nothing hangs, and
memory stays bounded.
"""

import gc
import logging
import random
import signal
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType

from _pytest.logging import LogCaptureHandler

from cqstore.store.errors import StoreError

MAX_SECONDS = 30
"""Far more than any buffer takes; reached only by a loop that does not end."""
MAX_BYTES = 32 << 20
"""What one input may make Python allocate beyond what was allocated before."""
LONG = 20
"""A long run takes so many times the inputs of a normal one."""
_WIDTHS = (1, 2, 4, 8)


class Hang(BaseException):
    """Something took longer than anything may; no handler of ``Exception`` keeps it in."""


@contextmanager
def bounded(seconds: int = MAX_SECONDS, max_bytes: int = MAX_BYTES) -> Iterator[None]:
    """Fail if the block takes longer (main thread), or allocates more through Python."""
    tracemalloc.start()
    try:
        with in_time(seconds):
            yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= max_bytes, f"{peak} bytes allocated"


@contextmanager
def resident(max_bytes: int) -> Iterator[None]:
    """Fail if the process grows by more inside the block, its libraries and maps included.

    Cheaper than ``bounded`` where much is allocated, and blind where freed memory is used again.
    """
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts over
    before = resident_bytes()
    yield
    grown = _status("self", "VmHWM") - before
    assert grown <= max_bytes, f"the process grew by {grown} bytes"


def resident_bytes(process: int | str = "self") -> int:
    """Return the memory of a process."""
    return _status(process, "VmRSS")


def _status(process: int | str, name: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """Interrupt the block with ``Hang`` after so many seconds (main thread).

    There is one timer, which pytest-timeout and blocks around this one have set: it goes on after.
    """

    def expired(_: int, __: FrameType | None) -> None:
        raise Hang

    previous, began = signal.signal(signal.SIGALRM, expired), monotonic()
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if left:  # the limit of the whole test, or of a block around this one
            signal.setitimer(signal.ITIMER_REAL, max(left - (monotonic() - began), 0.001))


def mutated(draw: random.Random, data: bytes, other: bytes, fields: Sequence[range] = ()) -> bytes:
    """Return ``data`` damaged in one to three ways; ``other`` is what may be spliced in.

    ``fields``: the bytes of numbers (big-endian) that are worth an extreme value.
    """
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        data = draw.choice(_WAYS)(draw, data, other, fields)
    return data


def fuzz(
    name: str,
    seeds: Sequence[bytes],
    run: Callable[[bytes], object],
    count: int,
    *,
    long: bool = False,
    fields: Sequence[range] = (),
    mutate: Callable[[random.Random, bytes, bytes, Sequence[range]], bytes] = mutated,
) -> None:
    """Run damaged ``seeds`` through ``run``, half of ``count``; ``long``: up to twenty times it.

    Input *n* is made by ``random.Random(f"{name} {n}")``: a failure names *n*. The long run begins
    where the normal one ends.
    """
    assert seeds
    short = count // 2
    numbers = range(short, LONG * count) if long else range(short)
    gc.collect()
    for number in numbers:
        draw = random.Random(f"{name} {number}")
        data = mutate(draw, draw.choice(seeds), draw.choice(seeds), fields)
        _forget_logs()
        try:
            with bounded():
                run(data)
        except StoreError:
            continue
        except BaseException as exc:
            exc.add_note(f"{name}, input {number} of {len(data)} bytes: {data[:2000].hex()}")
            raise


def _forget_logs() -> None:
    """Drop what pytest has captured of former inputs: at each growth its text is allocated anew."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogCaptureHandler):
            handler.reset()


# ---- the ways


def _flip(draw: random.Random, data: bytes, _: bytes, __: Sequence[range]) -> bytes:
    changed = bytearray(data)
    for _flip in range(draw.choice((1, 1, 2, 8)) if data else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _truncate(draw: random.Random, data: bytes, _: bytes, __: Sequence[range]) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _extreme(draw: random.Random, data: bytes, _: bytes, fields: Sequence[range]) -> bytes:
    field = draw.choice(fields) if fields and draw.random() < 0.8 else range(0)
    at, width = field.start, len(field)
    if not width:
        width = draw.choice(_WIDTHS)
        at = draw.randrange(max(len(data) - width + 1, 1))
    top = 1 << (8 * width - 1)
    near = draw.randrange(-2, 3)
    value = draw.choice((0, top, top - 1, -1, near, len(data) + near, draw.randrange(2 * top)))
    return data[:at] + (value % (2 * top)).to_bytes(width, "big") + data[at + width :]


def _splice(draw: random.Random, data: bytes, other: bytes, _: Sequence[range]) -> bytes:
    at = draw.randrange(len(data) + 1)
    since = at if draw.random() < 0.5 else draw.randrange(len(other) + 1)
    return data[:at] + other[since:]


def _overwrite(draw: random.Random, data: bytes, other: bytes, _: Sequence[range]) -> bytes:
    at = draw.randrange(len(data) + 1)
    size = min(draw.choice((1, 8, 64, 512)), len(data) - at)
    since = draw.randrange(len(other) + 1)
    fill = draw.choice((bytes(size), b"\xff" * size, other[since : since + size]))
    return data[:at] + fill + data[at + size :]


def _cut_out(draw: random.Random, data: bytes, _: bytes, __: Sequence[range]) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + data[at + draw.choice((1, 2, 20, 100)) :]


_WAYS = (_flip, _truncate, _extreme, _extreme, _splice, _overwrite, _cut_out)
