"""A link below TCP that loses, delays and reorders packets: a TUN device and a thread.

What is sent to ``FAR`` comes back to this machine as if ``FAR`` had sent it to ``NEAR``: the two
addresses change places, which leaves all checksums as they are. So a server that listens on every
address is reached at ``FAR``, over the link both ways. Linux, root; best in a network namespace.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

NEAR, FAR = "10.9.0.1", "10.9.0.2"
NETWORK = "10.9.0.0/24"
_NAME = "cqlossy"
_MTU = "1500"
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_SOURCE, _DESTINATION, _END = 12, 16, 20
"""Bytes of an IPv4 head."""


@dataclass(frozen=True)
class Weather:
    """What befalls the packets. One that is delayed less than one before it overtakes it."""

    loss: float
    """Share of the packets."""
    delay: float
    """Seconds, at least."""
    jitter: float
    """Seconds more, at most."""

    @classmethod
    def of(cls, words: str) -> "Weather":
        """Return that of ``loss=1,delay=5,jitter=2``: per cent and milliseconds."""
        named = dict(word.split("=") for word in words.split(","))
        return cls(
            float(named["loss"]) / 100, float(named["delay"]) / 1000, float(named["jitter"]) / 1000
        )


@contextmanager
def lossy_link(weather: Weather, seed: int) -> Iterator[Counter[str]]:
    """Have the link up in the block; gives how many packets came, were lost, and were overtaken."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        wanted = struct.pack("16sH22x", _NAME.encode(), _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(device, _TUNSETIFF, wanted)
        for words in (
            ("addr", "add", f"{NEAR}/24", "dev", _NAME),
            ("link", "set", _NAME, "up", "mtu", _MTU),
        ):
            subprocess.run(["ip", *words], check=True)
        done, ended = Counter[str](), threading.Event()
        thread = threading.Thread(target=_carry, args=(device, weather, seed, done, ended))
        thread.start()
        try:
            yield done
        finally:
            ended.set()
            thread.join()
    finally:
        os.close(device)


def _carry(
    device: int, weather: Weather, seed: int, done: Counter[str], ended: threading.Event
) -> None:
    """Take packets and give them back when they are due."""
    draw, numbers = random.Random(seed), count()
    waiting: list[tuple[float, int, bytes]] = []
    last = -1
    while not ended.is_set():
        left = waiting[0][0] - time.monotonic() if waiting else 0.1
        select.select([device], [], [], min(max(left, 0), 0.1))
        for packet in _taken(device):
            done["packets"] += 1
            if draw.random() < weather.loss:
                done["lost"] += 1
                continue
            due = time.monotonic() + weather.delay + draw.random() * weather.jitter
            heapq.heappush(waiting, (due, next(numbers), packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, number, packet = heapq.heappop(waiting)
            done["overtaken"] += number < last
            last = max(last, number)
            os.write(device, _turned(packet))


def _taken(device: int) -> Iterator[bytes]:
    for _ in range(64):
        try:
            packet = os.read(device, 1 << 16)
        except BlockingIOError:
            return
        if packet[0] >> 4 == 4:  # the kernel has some for IPv6, too
            yield packet


def _turned(packet: bytes) -> bytes:
    addresses = packet[_DESTINATION:_END] + packet[_SOURCE:_DESTINATION]
    return packet[:_SOURCE] + addresses + packet[_END:]
