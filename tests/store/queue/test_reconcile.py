"""What one backend lacks of another, and what is evened out after a replay: against sets."""

from collections.abc import Iterator
from functools import partial
from itertools import combinations_with_replacement
from types import SimpleNamespace
from typing import Any

import pytest

from cqstore.store.errors import StoreError
from cqstore.store.queue.queue_reads import QueueReads
from cqstore.store.queue.reconcile import backfill, missing_units, reconcile_unlogged
from cqstore.store.queue.units import QueueKey
from tests.kit.queue_of import QueueOf

KEY = QueueKey("t", 0)
ENDS = list(combinations_with_replacement(range(5), 2))


class Ends:
    """A backend with one queue; the record of unit n lies at phy offset 100 * n."""

    def __init__(self, low: int, high: int) -> None:
        self.units = range(low, high)

    def queues(self, **_: object) -> list[QueueKey]:
        return [KEY]

    def queue(self, topic: str, queue_id: int) -> QueueOf:
        return QueueOf(self, topic, queue_id)

    spans_of = QueueReads.spans_of

    def min_offset(self, *_: object) -> int:
        return self.units.start

    def max_offset(self, *_: object) -> int:
        return self.units.stop

    def read_units(self, _topic: str, _queue_id: int, at: int, _count: int) -> SimpleNamespace:
        rows = [(100 * at,)] if at in self.units else []
        return SimpleNamespace(rows=lambda: iter(rows))


def replica(ends: tuple[int, int], whole: int) -> Any:
    return SimpleNamespace(store=Ends(*ends), synced_to=whole, accepts=lambda _: True)


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
        found = list(missing_units(replica(late, 10**9), replica(ahead, 0), lambda *_: False))
        if not has - other:
            assert found == [], (ahead, late)
            continue
        [(queue, offsets, is_head)] = found
        assert (queue, set(offsets)) == (KEY, before or behind), (ahead, late)
        assert is_head == (bool(before) if other else late[1] > 0), (ahead, late)


def test_what_a_replay_brings_or_was_deleted_is_no_lack() -> None:
    for ahead, late in pairs():
        every = list(missing_units(replica(late, 10**9), replica(ahead, 0), lambda *_: False))
        for whole in (0, 100, 200, 300):
            found = list(missing_units(replica(late, whole), replica(ahead, 0), lambda *_: False))
            kept = [lack for lack in every if lack.is_head or lack.offsets.start * 100 < whole]
            assert found == kept, (ahead, late, whole)
            gone = partial(is_before, whole)
            alive = list(missing_units(replica(late, 10**9), replica(ahead, 0), gone))
            assert alive == [lack for lack in every if lack.offsets.start * 100 >= whole]


class Queues:
    """A backend with a queue for each letter; the record of unit n lies at phy offset 100 * n."""

    fills_holes = False
    spans_of, queue_ends = QueueReads.spans_of, QueueReads.queue_ends

    def __init__(self, done: list[object], **ends: tuple[int, int]) -> None:
        self.ends = {QueueKey(name, 0): range(*span) for name, span in ends.items()}
        self.done = done

    def queues(self, **_: object) -> list[QueueKey]:
        return list(self.ends)

    def queue(self, topic: str, queue_id: int) -> QueueOf:
        return QueueOf(self, topic, queue_id)

    def min_offset(self, *key: Any) -> int:
        return self.ends.get(QueueKey(*key), range(0)).start

    def max_offset(self, *key: Any) -> int:
        return self.ends.get(QueueKey(*key), range(0)).stop

    def iterate(self, topic: str, queue_id: int, at: int) -> Iterator[SimpleNamespace]:
        assert at in self.ends[QueueKey(topic, queue_id)]
        yield SimpleNamespace(phy_offset=100 * at)

    def read_units(self, _topic: str, _queue_id: int, at: int, _count: int) -> SimpleNamespace:
        return SimpleNamespace(rows=lambda: iter([(100 * at,)]))

    def restore_end(self, *given: object) -> None:
        self.done.append(given)

    def delete_queue(self, topic: str, _queue_id: int) -> None:
        self.done.append(topic)


def of(queues: Queues, *, but: str = "", **facts: object) -> Any:
    live = lambda *key: queues.min_offset(*key) < queues.max_offset(*key)  # noqa: E731
    reported = {
        "was_lagging": False,
        "began_empty": False,
        "exclusive_queues": None,
        "synced_to": 10**9,
        "selection": f"!{but}",
        **facts,
    }
    accepts = lambda topic: topic not in but  # noqa: E731
    return SimpleNamespace(name="x", store=queues, has_live_units=live, accepts=accepts, **reported)


def evened(facts: dict[str, object]) -> tuple[list[object], list[object]]:
    """Return what was restored, and which queues went."""
    done: list[object] = []
    ahead = Queues([], both=(0, 9), ended=(9, 9), alive=(0, 9), here=(9, 9), other=(9, 9), t=(4, 4))
    late = Queues(
        done, both=(0, 9), ended=(4, 4), alive=(4, 4), here=(2, 4), t=(4, 4),
        expired=(5, 5), deleted=(0, 3), lives=(0, 4), foreign=(0, 3),
    )  # fmt: skip
    reconcile_unlogged(
        of(late, but="other", **facts), of(ahead, but="foreign"),
        lambda topic, phy_offset: topic == "deleted" and phy_offset == 200,
    )  # fmt: skip
    restored = [each for each in done if not isinstance(each, str)]
    return restored, [each for each in done if isinstance(each, str)]


def test_after_a_replay_ends_are_restored_and_what_was_deleted_goes() -> None:
    own = {QueueKey(name, 0) for name in ("deleted", "lives")}
    ended = [("ended", 0, 9)]
    assert evened({}) == (ended, [])
    assert evened({"was_lagging": True}) == (ended, ["expired", "deleted"])
    assert evened({"began_empty": True}) == (ended, ["expired", "deleted", "lives"])
    assert evened({"exclusive_queues": own}) == (ended, ["expired", "deleted"])
    assert evened({"exclusive_queues": set()}) == (ended, ["expired", "deleted", "lives"])


def test_the_end_of_a_queue_that_a_replica_lacks_entirely_is_restored() -> None:
    done: list[object] = []
    late, ahead = Queues(done, both=(0, 9)), Queues([], both=(0, 9), ended=(9, 9))
    reconcile_unlogged(of(late), of(ahead), lambda *_: False)
    assert done == [("ended", 0, 9)]


def test_queues_that_a_replica_no_longer_gets_hide_no_lack_and_go_if_deleted() -> None:
    done: list[object] = []
    late = Queues(done, both=(0, 9), apart=(0, 9), left=(5, 5))
    ahead = Queues([], both=(0, 9), apart=(0, 9), ended=(9, 9))
    lagging = of(late, but="apart left", was_lagging=True)
    reconcile_unlogged(lagging, of(ahead), lambda *_: False)
    assert done == [("ended", 0, 9), "left"]


@pytest.mark.parametrize("fills", [False, True])
def test_what_begins_late_goes_once_it_is_noted_and_all_else_stays(*, fills: bool) -> None:
    done: list[object] = []
    late = Queues(done, head=(4, 9), tail=(0, 5), own=(0, 2), same=(0, 3))
    late.fills_holes = fills
    ahead = Queues([], head=(0, 9), tail=(0, 9), same=(0, 3))
    replica = of(late)
    backfill(replica, of(ahead), lambda *_: False, lambda: done.append("noted!"))
    assert done == (["noted!"] if fills else ["noted!", "head"])
    assert (replica.synced_to, replica.exclusive_queues) == (0, {QueueKey("own", 0)})
    replica = of(late)
    backfill(replica, of(late), lambda *_: False, lambda: done.append("noted again"))
    assert (replica.synced_to, replica.exclusive_queues) == (10**9, None)
    assert "noted again" not in done


def test_a_queue_that_is_not_compared_hides_none_behind_it() -> None:
    late = Queues([], end=(0, 5))
    ahead = Queues([], apart=(0, 9), foreign=(0, 9), damaged=(0, 9), end=(0, 9))
    ends = ahead.min_offset

    def min_offset(*key: Any) -> int:
        if key[0] == "damaged":
            raise StoreError("no such byte")
        return ends(*key)

    ahead.min_offset = min_offset  # type: ignore[method-assign]
    found = list(missing_units(of(late, but="apart"), of(ahead, but="foreign"), lambda *_: False))
    assert found == [(QueueKey("end", 0), range(5, 9), False)]
