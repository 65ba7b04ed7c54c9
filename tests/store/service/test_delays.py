"""Delay levels as RocketMQ reads them (``parseDelayLevel``, ``computeDeliverTimestamp``)."""

import pytest

from cqstore.store.errors import StoreConfigError
from cqstore.store.service.dispatching.delay import DelayLevels

LONG_MAX = (1 << 63) - 1
TAGS_CODE = 7


@pytest.mark.parametrize(
    ("delay", "due"),
    [
        ("1", 1_500), ("2", 500 + 300_000), ("3", 500 + 7_200_000), ("4", 500 + 86_400_000),
        ("5", 500 + 86_400_000), ("99", 500 + 86_400_000),  # more than there are: the longest
        ("0", TAGS_CODE), ("-1", TAGS_CODE), ("x", TAGS_CODE), ("", TAGS_CODE),
    ],
)  # fmt: skip
def test_a_level_stands_for_a_time(delay: str, due: int) -> None:
    levels = DelayLevels("1s 5m  2h 1d")
    assert levels.max_level == 4
    assert levels.tags_code(delay, 500, TAGS_CODE) == due


def test_a_time_wraps_as_java_s_long_does() -> None:
    levels = DelayLevels("1s")
    assert levels.tags_code("1", LONG_MAX - 1000, TAGS_CODE) == LONG_MAX
    assert levels.tags_code("1", LONG_MAX - 999, TAGS_CODE) == -LONG_MAX - 1


def test_without_levels_nothing_is_delayed() -> None:
    assert DelayLevels("").tags_code("1", 500, TAGS_CODE) == TAGS_CODE


def test_what_is_no_time_is_refused() -> None:
    assert DelayLevels(f"{'9' * 12}s").max_level == 1
    for text in ("5", "s", "1x", "1.5s", "-1s", "²s", "1 s", f"{'9' * 13}s", "1s 2s 3"):
        with pytest.raises(StoreConfigError, match=r"messageDelayLevel: .* is no time"):
            DelayLevels(text)
