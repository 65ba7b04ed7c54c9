"""Asserts rewritten ahead of the workers are those that pytest itself would have made."""

from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.kit.rewritten import files_of, rewrite_file


def test_a_file_is_rewritten_once_and_again_when_it_changes(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    path = tmp_path / "test_it.py"
    path.write_text("def test_it() -> None:\n    assert 1 + 1 == 2\n")
    assert rewrite_file(path, pytestconfig)
    (cached,) = tmp_path.rglob("*.pyc")
    found = rewrite._read_pyc(path, cached)
    _, wanted = rewrite._rewrite_test(path, pytestconfig)
    assert found == wanted
    assert "@pytest_ar" in str(wanted.co_names) + str(wanted.co_varnames)
    assert not rewrite_file(path, pytestconfig)
    path.write_text("def test_it() -> None:\n    assert 1 + 1 == 2 + 0\n")
    assert rewrite_file(path, pytestconfig)


def test_files_are_those_of_the_words(tmp_path: Path) -> None:
    for name in ("a/test_one.py", "a/b/test_two.py", "a/other.py", "test_three.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    words = [str(tmp_path / "a"), f"{tmp_path}/test_three.py::test_it", "nowhere"]
    names = ["a/b/test_two.py", "a/test_one.py", "test_three.py"]
    assert files_of(words) == [tmp_path / name for name in names]
