"""What ``cqstore migrate`` shows while it works: on a terminal, and nothing anywhere else."""

import io
import re
import sys
from typing import Any

import pytest

from migration import verbs


class _Terminal(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def shown(monkeypatch: pytest.MonkeyPatch, work: Any, *, terminal: bool) -> tuple[str, str]:
    """Return what ``work`` wrote on stdout, which is a terminal, and on stderr."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    out, err = _Terminal(terminal=True), _Terminal(terminal=terminal)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        patched.setattr(sys, "stderr", err)
        work()
    return out.getvalue(), err.getvalue()


def telling() -> None:
    with verbs._telling() as tell:
        tell("moving the old queues away")


def moving() -> None:
    with verbs._bar("moving") as tick:
        tick(100, None)
        for done in (150, 200, 300):
            tick(done, 400)


@pytest.mark.parametrize(("work", "told"), [(telling, "old queues away"), (moving, "300/400")])
def test_work_is_shown_on_a_terminal_and_then_wiped_away(
    monkeypatch: pytest.MonkeyPatch, work: Any, told: str
) -> None:
    assert shown(monkeypatch, work, terminal=False) == ("", "")
    out, err = shown(monkeypatch, work, terminal=True)
    assert out == ""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err)
    assert told in plain
    assert ("units/s" in plain) == (work is moving)
    assert err.endswith("\x1b[2K"), "the line is erased"
