"""What one backend lacks of another is told from the ends of a queue alone: against sets."""

from collections.abc import Iterator
from functools import partial
from itertools import combinations_with_replacement
from types import SimpleNamespace
from typing import Any

from store.queue.evening import lacking
from store.queue.units import QueueKey

KEY = QueueKey("t", 0)
ENDS = list(combinations_with_replacement(range(5), 2))


class Ends:
    """A backend with one queue; the record of unit n lies at phy offset 100 * n."""

    def __init__(self, low: int, high: int) -> None:
        self.units = range(low, high)

    def queues(self, **_: object) -> list[QueueKey]:
        return [KEY]

    def min_offset(self, *_: object) -> int:
        return self.units.start

    def max_offset(self, *_: object) -> int:
        return self.units.stop

    def read_units(self, _topic: str, _queue_id: int, at: int, _count: int) -> SimpleNamespace:
        rows = [(100 * at,)] if at in self.units else []
        return SimpleNamespace(rows=lambda: iter(rows))


def part(ends: tuple[int, int], whole: int) -> Any:
    return SimpleNamespace(store=Ends(*ends), whole=whole, takes=lambda _: True)


def is_before(end: int, _topic: str, phy_offset: int) -> bool:
    return phy_offset < end


def pairs() -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    for ahead in ENDS:
        for late in ENDS:
            yield ahead, late


def test_what_lies_before_comes_first_and_else_what_lies_behind() -> None:
    for ahead, late in pairs():
        has, other = set(range(*ahead)), set(range(*late))
        before = {unit for unit in has if unit < late[0]} if other else has
        behind = {unit for unit in has if unit >= late[1]}
        found = list(lacking(part(late, 10**9), part(ahead, 0), lambda *_: False))
        if not has - other:
            assert found == [], (ahead, late)
            continue
        [(queue, offsets, is_head)] = found
        assert (queue, set(offsets)) == (KEY, before or behind), (ahead, late)
        assert is_head == (bool(before) if other else late[1] > 0), (ahead, late)


def test_what_a_replay_brings_or_was_deleted_is_no_lack() -> None:
    for ahead, late in pairs():
        every = list(lacking(part(late, 10**9), part(ahead, 0), lambda *_: False))
        for whole in (0, 100, 200, 300):
            found = list(lacking(part(late, whole), part(ahead, 0), lambda *_: False))
            kept = [lack for lack in every if lack.is_head or lack.offsets.start * 100 < whole]
            assert found == kept, (ahead, late, whole)
            gone = partial(is_before, whole)
            alive = list(lacking(part(late, 10**9), part(ahead, 0), gone))
            assert alive == [lack for lack in every if lack.offsets.start * 100 >= whole]
