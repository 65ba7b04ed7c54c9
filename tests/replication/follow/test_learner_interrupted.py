"""A learner that a signal's handler interrupts: each byte of its log has its epoch on disk."""

import gc
import logging
import random
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import cqstore.replication
from tests.kit import interrupts
from tests.kit.epoch_master import EpochMaster
from tests.kit.interrupts import first_places, run_interrupted
from tests.kit.mutations import in_time
from tests.kit.share import SomePlaces
from tests.replication.conftest import Led
from tests.replication.follow.test_learner import epochs_in, follow, log_in, of

SECONDS = 60
SHARE, MOST = 4, 1000
Step = Callable[[], object]


class Stopped(KeyboardInterrupt):
    """What the handler raises: it leaves the loop at once."""


def stop() -> None:
    raise Stopped


@pytest.fixture
def step(led: Led, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Step]:
    """Follow the log in small pieces, so that epochs begin within and between them."""
    monkeypatch.setattr(interrupts, "_OURS", (f"{cqstore.replication.__path__[0]}/",))
    # What pytest kept of them would keep frames, and what these hold.
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    cuts = [random.Random(3).randint(200, 3000) for _ in range(6)]
    yield lambda: follow(tmp_path / "own", EpochMaster(led.log, of(led), cuts=[*cuts]))
    gc.collect()


def interrupt(led: Led, own: Path, step: Step, numbers: Iterable[int]) -> None:
    for number in numbers:
        shutil.rmtree(own, ignore_errors=True)
        with in_time(SECONDS):
            with suppress(Stopped):
                run_interrupted(step, number, stop)
            gc.collect()  # what the interrupt left in frames
            log = log_in(own)
            assert led.log.startswith(log)
            begun = [f"{epoch}-{start}" for epoch, start in of(led) if start < len(log)]
            there = epochs_in(own) if begun else []
            assert there[: len(begun)] == begun, number
            step()
        assert log_in(own) == led.log
        assert epochs_in(own) == [f"{epoch}-{start}" for epoch, start in of(led)]


@pytest.mark.slow
def test_a_learner_that_is_interrupted_has_noted_its_epochs(
    led: Led, tmp_path: Path, step: Step, some_places: SomePlaces
) -> None:
    found = first_places(step)
    assert len(found) > 150
    places = [found[at - 1] for at in some_places(len(found), SHARE, MOST)]
    interrupt(led, tmp_path / "own", step, places)
