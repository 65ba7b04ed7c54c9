"""Result files: written whole, and refused with a sentence if they are none."""

import json
from pathlib import Path

import pytest

from cqstore.ab import results
from cqstore.ab.results.result import Result
from cqstore.ab.results.result_file import read_result, result_schema, write_result
from cqstore.store.errors import StoreConfigError, StoreError, StoreIOError, UnsupportedFormatError
from tests.ab.made_result import made_result


@pytest.fixture
def made() -> Result:
    return made_result(1, workloads=["listing"])


def test_the_schema_file_is_that_of_the_models() -> None:
    file = Path(str(results.__file__)).with_name("result.schema.json")
    assert file.read_text() == result_schema()


def test_a_result_that_was_written_is_read_again(made: Result, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("an older one")
    write_result(path, made)
    assert read_result(path) == made
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
        ({"seconds": -1}, "seconds: Input should be greater than or equal to 0"),
        ({"seconds": float("nan")}, "seconds: Input should be a finite number"),
        ({"machine": None}, "machine: Input should be an object"),
        ({"sides": []}, "sides: List should have at least 1 item"),
        (
            {"points": [{"side": "else", "queues": 1, "units": 1}]},
            "points.0.footprint: Field required",
        ),
    ],
)
def test_what_is_no_result_is_refused(
    made: Result, tmp_path: Path, change: dict[str, object], reported: str
) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(made.model_dump(mode="json") | change))
    with pytest.raises(StoreConfigError) as refused:
        read_result(path)
    assert str(refused.value).startswith(f"this is not a result of cqstore ab: {reported}")


def test_a_side_that_is_nowhere_told_of_is_refused(made: Result, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    for place in ("twin_of", "turn", "histogram", "twice"):
        data = made.model_dump(mode="json")
        if place == "twin_of":
            data["sides"][-1]["twin_of"] = "else"
        elif place == "turn":
            data["workloads"][0]["rounds"][7]["side"] = "else"
        elif place == "histogram":
            data["workloads"][0]["service"]["else"] = ""
        else:
            data["workloads"] *= 2
        path.write_text(json.dumps(data))
        reported = "two workloads have the same name" if place == "twice" else "no such side: else"
        with pytest.raises(StoreConfigError, match=reported):
            read_result(path)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", '"text"', "\x00\xff", "[" * 100_000])
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(StoreConfigError, match="this is not a result of cqstore ab"):
        read_result(path)


def test_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"format": 2}')
    with pytest.raises(
        UnsupportedFormatError, match="has format 2, but this release reads format 1"
    ):
        read_result(path)


def test_what_cannot_be_read_or_written_is_said(made: Result, tmp_path: Path) -> None:
    with pytest.raises(StoreIOError, match="cannot read the result"):
        read_result(tmp_path / "none.json")
    with pytest.raises(StoreError):
        read_result(tmp_path)
    with pytest.raises(StoreIOError, match="cannot write the result"):
        write_result(tmp_path / "none" / "result.json", made)
