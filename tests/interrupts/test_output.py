"""Standard output of a command that Ctrl-C ends: what was written is not written again."""

import io
import os
from contextlib import suppress
from pathlib import Path

from cqstore.cli.streams import _RawOutput
from tests.kit.interrupts import Interrupted, run_interrupted

LINES = [b"line %d\n" % number for number in range(6)]


def printed(path: Path, number: int) -> tuple[bytes, int]:
    """Print with an interrupt at one place, then flush as a command does at its end."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    # The buffer holds one line, so that each line is written by a call of its own.
    out = io.BufferedWriter(_RawOutput(fd, "w", closefd=False), len(LINES[0]))

    def step() -> None:
        for line in LINES:
            out.write(line)
        out.flush()

    places = 0
    with suppress(Interrupted):
        places = run_interrupted(step, number)
    out.flush()
    os.close(fd)
    return path.read_bytes(), places


def test_no_line_is_printed_twice_wherever_an_interrupt_comes(tmp_path: Path) -> None:
    whole = b"".join(LINES)
    found, places = printed(tmp_path / "out", 0)
    assert found == whole
    assert places > len(LINES)
    for number in range(1, places + 1):
        assert whole.startswith(printed(tmp_path / "out", number)[0])
