"""Whether parts that are written one after the other stand still."""

import pytest

from cqstore.store.queue.changes import Changes, changing


class StoreComponents:
    def __init__(self) -> None:
        self.changes = Changes()
        self.seen: list[int | None] = []

    @changing
    def write(self, *, fail: bool = False) -> str:
        """Look while it is under way."""
        self.seen.append(self.changes.moment)
        if fail:
            raise ValueError
        return "done"


def test_a_moment_is_known_between_writes_and_each_has_its_own() -> None:
    parts = StoreComponents()
    before = parts.changes.moment
    assert parts.changes.moment == before is not None
    assert parts.write() == "done"
    after = parts.changes.moment
    assert after is not None
    assert (parts.seen, after == before) == ([None], False)
    with pytest.raises(ValueError):  # noqa: PT011 - of this test's own
        parts.write(fail=True)
    assert parts.changes.moment not in {None, before, after}


def test_two_writes_at_once_are_over_when_both_are() -> None:
    changes = Changes()
    with changes:
        with changes:
            assert changes.moment is None
        assert changes.moment is None
    assert changes.moment is not None
