"""A dispatch that is cut short anywhere, while a thread waits for what it brings."""

from contextlib import suppress
from pathlib import Path

import pytest

from cqstore.store.errors import StoreError, StoreFailedError
from cqstore.store.service.opening.components import components_of
from tests.kit.interrupts import IGNORED, Interrupted, run_interrupted
from tests.kit.reput import running
from tests.kit.waiting import until
from tests.store.service.test_arrivals import SECONDS, is_waited_for, opened, put


@IGNORED
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
def test_an_interrupted_dispatch_passes_over_no_waiter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """It is done and the waiter is woken, or is done later, or the store fails and says so."""
    ends = dict[str, int]()

    def dispatch_at(root: Path, number: int) -> int:
        store, found, places = opened(root, "file"), list[object](), 0

        def wait() -> None:
            try:
                found.append(store.wait_for("t", 0, 0, SECONDS))
            except StoreFailedError as exc:
                found.append(exc)

        with running(wait):
            until(lambda: is_waited_for(store) and components_of(store).dispatcher.full_at == 1)
            monkeypatch.setattr(components_of(store).dispatcher.arrivals, "wake", lambda: None)
            put(store)
            with suppress(Interrupted):
                places = run_interrupted(lambda: store.max_offset("t", 0), number)
            with suppress(StoreError):
                components_of(store).flush._flush_much()  # as it does twice a second
        (end,) = found
        ends[type(end).__name__] = ends.get(type(end).__name__, 0) + 1
        with suppress(StoreError):
            store.close()
        with opened(root, "file") as again:
            assert again.max_offset("t", 0) == 1
        return places

    places = dispatch_at(tmp_path / "0", 0)
    assert places > 50
    for number in range(1, places + 1, every):
        dispatch_at(tmp_path / str(number), number)
    assert ends.keys() == {"bool", "StoreFailedError"}
