"""Which records become puts of a trace, and what is said of those that do not."""

import json
import math
import time
from pathlib import Path

import pytest

from cqstore.ab.record import recorded_lines as module
from cqstore.ab.record.missing import Ending
from cqstore.ab.record.names import Names
from cqstore.ab.record.record_stream import RecordStream
from cqstore.ab.record.recorded_lines import LAST_LINE_BYTES, Counts, RecordedLines
from cqstore.ab.trace.trace_output import TraceOutput
from cqstore.replication.wire import Piece
from cqstore.store.record.message import Message, SysFlag
from cqstore.store.service.message_store import MessageStore
from tests.ab.record.conftest import CONFIG
from tests.kit.log_bytes import log_of


def taken(tmp_path: Path, messages: list[Message], *, late: float = 0.0) -> RecordedLines:
    """Put messages; record those of ten seconds that began ``late`` seconds after now."""
    began_ms = int((time.time() + late) * 1000)
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        for message in messages:
            assert store.put_message(message).ok
        records = list(RecordStream().feed(Piece(0, log_of(store))))
    output = TraceOutput(tmp_path / "trace", 1 << 20, b"first\n", LAST_LINE_BYTES)
    lines = RecordedLines(output, Names(), began_ms, 10.0, None)
    lines.put(records)
    output.close()
    return lines


def sizes(tmp_path: Path) -> list[int]:
    _, *lines = (tmp_path / "trace").read_text().splitlines()
    return [json.loads(line)["size"] for line in lines]


def test_records_that_queues_lack_are_no_puts(tmp_path: Path) -> None:
    prepared = Message("t", b"12", sys_flag=SysFlag.TRANSACTION_PREPARED)
    lines = taken(tmp_path, [Message("t", b"1"), prepared, Message("t", b"123")])
    assert sizes(tmp_path) == [1, 3]
    assert lines.counts.puts == 2


def test_bodies_that_no_trace_may_have_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PUT_BYTES", 100)
    messages = [Message("t", b"x" * size) for size in (100, 101, 500, 7)]
    lines = taken(tmp_path, messages)
    assert sizes(tmp_path) == [100, 7]
    assert (lines.counts.puts, lines.counts.large) == (2, 2)


@pytest.mark.parametrize(("late", "past"), [(60.0, False), (-60.0, True)])
def test_records_of_another_time_are_no_puts(tmp_path: Path, late: float, *, past: bool) -> None:
    lines = taken(tmp_path, [Message("t", b"1")], late=late)
    assert sizes(tmp_path) == []
    assert lines.is_past is past
    assert lines.counts.newest == pytest.approx(-late, abs=5)


def ending(**counts: float) -> Ending:
    return Ending(
        Counts(**counts), seconds=600, stopped_at=None, is_behind=False,  # type: ignore[arg-type]
        lost_bytes=0, resets=0, newcomers=0, failed_polls=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ({"ahead": 3.0}, "The master's clock is ahead by up to 3 s."),
        ({"behind": 2.6}, "Records arrived 3 s or more after their store time"),
        ({"newest": -40.0}, "The last record of the log was stored 40 s before the start."),
    ],
)
def test_clocks_that_differ_are_told(counts: dict[str, float], sentence: str) -> None:
    made = ending(**counts)
    assert list(made.missing()) == []
    (limit,) = made.limits()
    assert limit.startswith(sentence)


@pytest.mark.parametrize(
    "counts",
    [{}, {"ahead": 1.9, "behind": 1.9, "puts": 5}, {"behind": math.inf}, {"newest": 3.0}],
)
def test_nothing_is_told_of_a_recording_that_has_all(counts: dict[str, float]) -> None:
    assert [*ending(**counts).missing(), *ending(**counts).limits()] == []


def test_what_is_missing_is_counted() -> None:
    made = Ending(
        Counts(large=2, full_at=12.4, unwritten=1234), seconds=600, stopped_at=None,
        is_behind=True, lost_bytes=4096, resets=3, newcomers=4, failed_polls=5,
    )  # fmt: skip
    full, gap, large = made.missing()
    assert full == "The file was full after 12 s; at least 1,234 operations are missing."
    assert "4,096 bytes" in gap
    assert large == "2 puts with more than 4,194,304 bytes are missing."
    assert [text.split()[0] for text in made.limits()] == ["3", "4", "5"]
