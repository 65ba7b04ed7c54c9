"""A share of the long tests, drawn by a seed: a plugin of pytest.

``--share 1/6 --seed WORD`` leaves out all tests that are marked ``long`` but for about one of six.
The same seed draws the same tests, whatever others there are; a commit's name is a good one. A test
that tries hundreds of places, of which any may be the bad one, tries some of them in such a run
(``drawn_places``): the seed says which.
"""

import hashlib
from collections.abc import Callable
from fractions import Fraction

import pytest

from tests.kit.node_ids import without_group


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the share and the seed."""
    group = parser.getgroup("long tests")
    group.addoption("--share", type=Fraction, help="of the long tests, such as 1/6: others go")
    group.addoption("--seed", default="0", help="draws the share; any word")


def is_drawn(test: str, share: Fraction, seed: str) -> bool:
    """Tell whether a test, by its id, is in the share."""
    digest = hashlib.sha256(f"{seed} {test}".encode()).digest()
    return int.from_bytes(digest[:8], "big") * share.denominator < share.numerator << 64


def places_of(count: int, limit: int, word: str) -> range:
    """Return at most ``limit`` of the places 1 to ``count``, evenly apart; a word draws the first.

    Each place is drawn by some word.
    """
    apart = max(-(-count // limit), 1)
    digest = hashlib.sha256(word.encode()).digest()
    return range(1 + int.from_bytes(digest[:8], "big") % apart, count + 1, apart)


@pytest.fixture
def drawn_places(request: pytest.FixtureRequest) -> Callable[[int, int], range]:
    """``places_of`` for this test and seed; where a share is drawn, a quarter of the limit."""
    option = request.config.option

    def drawn(count: int, limit: int) -> range:
        limit = limit if option.share in {None, 1} else max(limit // 4, 1)
        return places_of(count, limit, f"{option.seed} {without_group(request.node.nodeid)}")

    return drawn


SomePlaces = Callable[[int, int, int], range]


@pytest.fixture(params=["few", pytest.param("many", marks=pytest.mark.long)])
def some_places(
    request: pytest.FixtureRequest, drawn_places: Callable[[int, int], range]
) -> SomePlaces:
    """``places_of`` for a test that has a short and a long run, each with a limit of its own.

    A short run has the same places whatever the seed.
    """
    if request.param == "many":
        return lambda count, _, limit: drawn_places(count, limit)
    return lambda count, limit, _: places_of(count, limit, request.node.originalname)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests that are not drawn."""
    share = config.option.share
    if share is None:
        return
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        long = item.get_closest_marker("long") is not None
        drawn = not long or is_drawn(without_group(item.nodeid), share, config.option.seed)
        (kept if drawn else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say how to draw the same again."""
    if config.option.share is None:
        return None
    return f"long tests: --share {config.option.share} --seed {config.option.seed}"
