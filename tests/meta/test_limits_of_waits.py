"""Waits of tests come to an end: limits within limits, forked children, what never comes about."""

import faulthandler
import os
import signal
import threading

import pytest

from tests.kit import standstill
from tests.kit.forks import RAISED, ended, fork, forked
from tests.kit.mutations import Hang, in_time
from tests.kit.waiting import until


def left() -> float:
    """Return the seconds after which the timer of this process would strike, 0 if it is off."""
    return signal.getitimer(signal.ITIMER_REAL)[0]


def test_what_takes_too_long_is_interrupted() -> None:
    with pytest.raises(Hang), in_time(0.02):
        threading.Event().wait(60)


def test_behind_a_block_with_a_limit_that_of_the_test_goes_on() -> None:
    of_test = left()
    assert of_test > 0, "pytest-timeout has set no timer"
    with in_time(1000):
        with in_time(5):
            assert 0 < left() <= 5
        assert 5 < left() <= 1000
    assert 0 < left() <= of_test


def test_a_limit_that_passed_within_a_block_with_another_strikes_behind_it() -> None:
    def wait() -> None:
        with in_time(60):
            threading.Event().wait(0.05)
        threading.Event().wait(60)

    with pytest.raises(Hang), in_time(0.02):
        wait()


def test_a_process_ends_that_no_signal_reaches(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    armed: list[tuple[float, bool]] = []

    def arm(seconds: float, **options: object) -> None:
        armed.append((seconds, options["exit"] is True))

    with monkeypatch.context() as patched:
        patched.setattr(faulthandler, "dump_traceback_later", arm)
        standstill.pytest_exception_interact(request.node)
    ((seconds, ends),) = armed
    assert ends
    assert seconds >= left() + 60 > 60, "pytest-timeout comes first"


def test_a_forked_child_that_raises_does_not_come_back(capfd: pytest.CaptureFixture[str]) -> None:
    parent = os.getpid()

    def fail() -> None:
        raise ValueError(f"not {parent}" if os.getpid() != parent else "here")

    assert forked(fail) == RAISED
    assert f"ValueError: not {parent}" in capfd.readouterr().err
    assert forked(lambda: 7) == 7
    assert forked(lambda: None) == 0
    assert forked(lambda: os.kill(os.getpid(), signal.SIGKILL)) == -signal.SIGKILL


def test_a_forked_child_that_does_not_end_is_killed_and_said() -> None:
    child = fork()
    if not child:
        try:
            signal.pause()
        finally:
            os._exit(0)
    with pytest.raises(AssertionError, match=f"{child} did not end within 0.01 s"):
        ended(child, 0.01)
    with pytest.raises(ChildProcessError):
        os.waitpid(child, 0)


def test_a_wait_in_vain_says_what_there_is_instead() -> None:
    with pytest.raises(AssertionError, match=r"never came about.*two of three"):
        until(lambda: False, lambda: "two of three", seconds=0.01)
