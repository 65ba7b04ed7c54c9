"""Reports come cut anywhere, and from anybody."""

import random
import struct

import pytest

from cqstore.replication.errors import WireError
from cqstore.replication.feed.reports import Reports
from tests.kit.log_bytes import pieces


def expected(values: tuple[int, ...]) -> list[int]:
    """Return the leading ones that a slave may say, one after the other."""
    good: list[int] = []
    for value in values:
        if value < max(good[-1] if good else 0, 0):
            break
        good.append(value)
    return good


def test_ten_thousand_streams_bring_what_a_slave_may_say_and_no_other_error() -> None:
    draw, refused, whole = random.Random(3), 0, 0
    for number in range(10_000):
        if number % 3:
            steps = sorted(draw.randint(0, 1 << draw.randint(1, 62)) for _ in range(9))
        else:
            steps = [draw.randint(-(1 << 63), (1 << 63) - 1) for _ in range(draw.randint(1, 4))]
        if number % 7 == 0:
            draw.shuffle(steps)
        stream = struct.pack(f">{len(steps)}q", *steps) + bytes(draw.randint(0, 7))
        good, found, reports = expected(tuple(steps)), list[int](), Reports()
        try:
            for piece in pieces(stream, draw.choice([1, 3, 8, 100]), number):
                found += reports.feed(piece, found[-1] if found else -1)
                assert len(reports._torn) < 8
        except WireError:
            refused += 1
            assert found == good[: len(found)]
            assert len(good) < len(steps)
            continue
        whole += 1
        assert found == good == steps
    assert refused > 1000
    assert whole > 1000


@pytest.mark.parametrize("value", [-1, -(1 << 63)])
def test_what_lies_before_every_log_is_refused(value: int) -> None:
    with pytest.raises(WireError, match="the slave requested an invalid phy offset"):
        Reports().feed(struct.pack(">q", value), -1)
