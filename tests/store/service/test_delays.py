"""Delay levels as RocketMQ reads them (``parseDelayLevel``, ``computeDeliverTimestamp``)."""

from pathlib import Path

import pytest

from cqstore.store.errors import StoreConfigError
from cqstore.store.service.dispatching.delay import DelayLevels, FoundLevels
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.delays import Clock, delayed, opened
from tests.kit.tree import tree_digest

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
        with pytest.raises(StoreConfigError, match=r"messageDelayLevel: invalid delay .*"):
            DelayLevels(text)


def test_units_show_the_levels_of_a_broker_whose_settings_are_not_known() -> None:
    found = FoundLevels(DelayLevels("1s 5s"))
    assert found.tags_code("1", 500, TAGS_CODE, 7500) == 7500
    assert found.tags_code("1", 1500, TAGS_CODE, 9999) == 8500  # unlike its level's others
    assert found.tags_code("1", 1500, TAGS_CODE, None) == 2500
    assert found.tags_code("2", 500, TAGS_CODE, 5500) == 5500
    assert found.tags_code("2", 500, TAGS_CODE, 9500) == 5500  # another one was as settings say
    assert found.tags_code("3", 500, TAGS_CODE, 9501) == 5500  # no whole seconds
    assert found.tags_code("3", 5000, TAGS_CODE, 0) == 10_000  # before it was stored
    assert found.tags_code("x", 500, TAGS_CODE, 9500) == TAGS_CODE
    assert found.delays_ms == {"1": 7000}


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_levels_of_a_broker_s_own_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    root, levels = tmp_path / "store", "7s 9s"
    with opened(root, Clock(monkeypatch), backend, message_delay_level=levels) as store:
        for number in range(6):
            assert store.put_message(delayed(number, 1 + number % 2)).ok
    before = tree_digest(root)
    given = {None: None, "7s 9s": 0, "1s 9s": 3}
    for text, damaged in given.items():
        config = StoreConfig() if text is None else StoreConfig(message_delay_level=text)
        with MessageStore.open(root, config, read_only=True) as store:
            findings = list(store.check())
        assert sum(each.damage for each in findings) == (damaged or 0), text
        notes = [each.problem for each in findings if "of delay level" in each.problem]
        assert notes == (
            []
            if text
            else [
                f"messages of delay level {level} wait {delay} ms, which differs from the"
                " default of messageDelayLevel: pass the broker's settings (--config) to check them"
                for level, delay in ((1, 7000), (2, 9000))
            ]
        )
    assert tree_digest(root) == before
