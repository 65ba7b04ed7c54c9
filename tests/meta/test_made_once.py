"""What takes long to make is made once a run."""

from pathlib import Path

import pytest

from tests.kit.once import made_once


@pytest.fixture
def name(tmp_path: Path) -> str:
    """A name that no other test asks for."""
    return tmp_path.name


def make(folder: Path) -> None:
    with (folder / "made").open("x") as file:
        file.write("whole")


def fail(folder: Path) -> None:
    (folder / "made").write_text("half")
    raise ValueError(folder)


def test_the_second_who_asks_gets_what_the_first_made(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    first = made_once(tmp_path_factory, name, make)
    assert made_once(tmp_path_factory, name, fail) == first
    assert (first / "made").read_text() == "whole"


def test_what_failed_is_not_taken_for_made(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    with pytest.raises(ValueError, match="once-"):
        made_once(tmp_path_factory, name, fail)
    assert (made_once(tmp_path_factory, name, make) / "made").read_text() == "whole"
