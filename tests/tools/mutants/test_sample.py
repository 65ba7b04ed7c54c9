"""Drawing mutations, finding tests for them, trying them out, and the report."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.kit.product_tree import PRODUCT
from tests.meta import test_errors
from tools.mutants.__main__ import PACKAGES, ROOT, _tried, draw, main, report
from tools.mutants.compiled import SUFFIXES
from tools.mutants.contexts import RULES
from tools.mutants.equal import LIST, equal_ones, key_of
from tools.mutants.mutations import Mutation, mutations
from tools.mutants.touched import Touching, _numbers_of, in_turn, touched_by
from tools.mutants.trial import READERS, Fate, Tree, Trees, TriedMutation

MUTATED = (".py", *SUFFIXES)
CODE = """def least(values, most):
    found = most
    for value in values:
        if value < found:
            found = value
    return found
"""
TESTS = """import os
import resource

from code_under_test import least


def test_of_one():
    assert least([1], 5) == 1


def test_of_more():
    assert least([3, 2, 4], 5) == 2


def test_of_none():
    assert least([], 5) == 5


def test_that_always_fails():
    raise AssertionError


def test_that_is_in_a_process_with_bounded_memory():
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == 6 << 30
"""
SECONDS = {
    f"test_code.py::{name}": seconds
    for name, seconds in {
        "test_of_none": 0.1, "test_of_one": 0.2, "test_of_more": 0.3,
        "test_that_is_in_a_process_with_bounded_memory": 0.4, "test_that_always_fails": 0.01,
    }.items()
}  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "code_under_test.py").write_text(CODE)
    (root / "test_code.py").write_text(TESTS)
    return Tree(root, set(), set())


def mutation(what: str) -> Mutation:
    found = mutations("code_under_test.py", CODE.encode())
    return next(each for each in found if what in each.what)


def those_but(*left_out: str) -> list[str]:
    return [name for name in SECONDS if not name.endswith(left_out)]


@pytest.mark.slow
def test_a_test_that_fails_kills(tree: Tree) -> None:
    outcome = tree.try_out(mutation("returns None"), those_but("always_fails"), SECONDS)
    assert (outcome.fate, outcome.killer) == (Fate.KILLED, "test_code.py::test_of_none")
    assert (tree.root / "code_under_test.py").read_text() == CODE


ENDING = """import os

from code_under_test import least


def test_of_two():
    assert least([1, 2], 5) is not None or os._exit(3)
"""


@pytest.mark.slow
def test_the_test_in_which_the_process_ends_kills(tree: Tree) -> None:
    (tree.root / "test_ending.py").write_text(ENDING)
    tests = [*those_but("test_of_none", "test_of_one", "test_of_more", "always_fails"),
             "test_ending.py::test_of_two"]  # fmt: skip
    seconds = {**SECONDS, "test_ending.py::test_of_two": 0.5}
    outcome = tree.try_out(mutation("returns None"), tests, seconds)
    assert (outcome.fate, outcome.killer) == (Fate.KILLED, tests[-1])


LONG = """import pytest

from code_under_test import least


@pytest.mark.parametrize("text", ["x" * 140_000])
def test_of_a_long_text(text):
    assert least([1], 5) == 1
"""


@pytest.mark.slow
def test_a_test_may_have_a_name_that_is_longer_than_a_word_of_a_command(tree: Tree) -> None:
    (tree.root / "test_long.py").write_text(LONG)
    name = f"test_long.py::test_of_a_long_text[{'x' * 140_000}]"
    outcome = tree.try_out(mutation("returns None"), [name], {name: 0.1})
    assert (outcome.fate, outcome.killer) == (Fate.KILLED, name)


READER = """from pathlib import Path

import pytest


@pytest.mark.parametrize(("name", "least"), [("os_errors", 100), ("progress", 10)])
def test_what_is_done_comes_first_and_then_to_what(name, least):
    assert "value < found" in Path("code_under_test.py").read_text()
"""


@pytest.mark.slow
def test_a_test_that_reads_the_code_kills_what_no_test_that_runs_it_does(tree: Tree) -> None:
    place = tree.root / READERS[0].partition("::")[0]
    place.parent.mkdir(parents=True)
    place.write_text(READER)
    equal = mutation("`value < found` becomes `value <= found`")
    outcome = tree.try_out(equal, those_but("always_fails"), SECONDS)
    assert (outcome.fate, outcome.killer) == (Fate.KILLED, READERS[0])


def test_those_that_read_the_code_are_there() -> None:
    one = test_errors.test_what_is_done_comes_first_and_then_to_what
    (cases,) = one.pytestmark  # type: ignore[attr-defined]
    named = [f"{one.__name__}[{name}-{least}]" for name, least in cases.args[1]]
    assert list(READERS) == [f"tests/meta/test_errors.py::{each}" for each in named]


@pytest.mark.slow
@pytest.mark.long
def test_what_no_test_tells_survives_also_where_a_test_fails_always(tree: Tree) -> None:
    equal = mutation("`value < found` becomes `value <= found`")
    outcome = tree.try_out(equal, list(SECONDS), SECONDS)
    assert (outcome.fate, outcome.tests) == (Fate.SURVIVED, 4)


@pytest.mark.slow
@pytest.mark.long
def test_two_mutations_of_one_length_in_one_second_are_told_apart(tree: Tree) -> None:
    for what in ("is always True", "`value < found` becomes", "returns None"):
        outcome = tree.try_out(mutation(what), those_but("always_fails"), SECONDS)
        expected = Fate.SURVIVED if "becomes" in what else Fate.KILLED
        assert outcome.fate is expected, what


def test_without_tests_nothing_touches_it(tree: Tree) -> None:
    assert tree.try_out(mutation("returns None"), [], SECONDS).fate is Fate.UNTOUCHED


def test_the_quickest_case_of_each_test_comes_first() -> None:
    seconds = {"a[1]": 1.0, "a[2]": 0.5, "b": 2.0, "c": 0.1}
    assert in_turn(seconds, seconds) == ["c", "a[2]", "b", "a[1]"]


def test_tests_are_those_of_the_line_else_of_its_function_else_of_its_file() -> None:
    seconds = {"t1": 1.0, "t2": 2.0, "t3": 3.0}
    lines = {"least": {"if value < found:": ["t1"], "found = most": ["t2"]}, "": {"x": ["t3"]}}
    known = Touching(seconds, [{"code_under_test.py": lines}])
    source = CODE.encode()
    assert known.tests(mutation("value < found"), source) == ["t1"]
    assert known.tests(mutation("returns None"), source) == ["t1", "t2"]
    moved = [{"code_under_test.py": {"other": lines["least"]}}]
    assert Touching(seconds, moved).tests(mutation("returns None"), source) == ["t1", "t2"]
    assert Touching(seconds, [{}]).tests(mutation("returns None"), source) == []


def test_a_seed_draws_the_same_and_only_what_was_asked_for() -> None:
    first = draw(ROOT, ["store"], "store/record", "7")
    assert first == draw(ROOT, ["store"], "store/record", "7")
    assert first != draw(ROOT, ["store"], "store/record", "8")
    assert len({key_of(each) for each in first[:5]}) == 5
    assert {Path(each.path).suffix for each in first} == {".py"}
    assert all(each.path.startswith("store/record/") for each in first)
    more = draw(ROOT, ["store"], ("store/record", "store/index"), "7")
    assert len(more) > len(first)
    assert [each for each in more if each.path.startswith("store/record/")] == first
    assert draw(ROOT, ["cq_file"], "store/record", "7") == []
    compiled = draw(ROOT, ["store", "cq_file"], ("store/record", "cq_file/_t"), "7", SUFFIXES)
    assert {Path(each.path).suffix for each in compiled} == set(SUFFIXES)
    assert {each.path.partition("/")[0] for each in compiled} == {"store", "cq_file"}


def test_what_is_drawn_can_be_listed_and_is_not_tried(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--list", "--seed", "7", "--cython", "3", "--only", "store/record"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    drawn = draw(ROOT, PACKAGES, ("store/record",), "7", SUFFIXES)[:3]
    assert lines == [line for each in drawn for line in (each.name, f"    {each.text}")]


def test_another_is_drawn_for_a_mutation_that_does_not_compile(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ones = [Mutation(f"a{number}.py", 1, 1, "", "x", "y", 0, 1, "") for number in range(4)]
    fates = [Fate.INVALID, Fate.INVALID, Fate.SURVIVED, Fate.KILLED]
    for one in ones:
        (tree.root / one.path).touch()
    trees = Trees(tree.root, tmp_path / "trees", 1)
    monkeypatch.setattr(
        Tree, "try_out", lambda _, one, *__: TriedMutation(one, fates[ones.index(one)])
    )
    rest = iter(ones)
    tried = [_tried(trees, Touching(), rest), _tried(trees, Touching(), rest)]
    assert [[each.fate for each in one] for one in tried] == [fates[:3], fates[3:]]


def test_what_is_listed_as_equal_is_in_the_code_and_is_not_drawn() -> None:
    listed = equal_ones()
    assert all(listed.values())
    found = {
        key_of(each)
        for path in {ROOT / path for path, _, _ in listed}
        for each in mutations(str(path.relative_to(ROOT)), path.read_bytes())
    }
    assert set(listed) - found == set()
    assert len(listed) == LIST.read_text().count("[[equal]]")
    paths = {path for path, _, _ in listed}
    drawn = [each for path in paths
             for each in draw(ROOT, [path.partition("/")[0]], path, "1", MUTATED)]  # fmt: skip
    assert {each.path for each in drawn} == paths
    assert not {key_of(each) for each in drawn} & set(listed)


def test_lines_are_noted_of_every_package_that_is_drawn_from() -> None:
    rules = ConfigParser()
    rules.read(RULES)
    assert rules["run"]["source_pkgs"] == "cqstore"
    assert sorted(PACKAGES) == sorted(PRODUCT)


@pytest.mark.parametrize(("killed", "code"), [(9, 0), (8, 1)])
def test_nine_of_ten_must_be_noticed_in_each_package(
    capsys: pytest.CaptureFixture[str], killed: int, code: int
) -> None:
    fates = [Fate.KILLED] * (killed - 1) + [Fate.TIMED_OUT] + [Fate.SURVIVED] * (10 - killed)
    here, there = (
        Mutation(path, 1, 1, "", "x", "y", 0, 1, "") for path in ("store/a.py", "cq_file/a.py")
    )
    outcomes = [TriedMutation(here, Fate.KILLED)] * 50 + [
        TriedMutation(there, fate) for fate in [*fates, Fate.INVALID]
    ]
    assert report(outcomes) == code
    printed = capsys.readouterr().out
    assert "store: 100% of 50 noticed" in printed
    assert f"cq_file: {killed}0% of 10 noticed" in printed
    assert "1 does not compile" in printed
    assert "survived: cq_file/a.py:1: y" in printed


def test_nothing_drawn_is_no_success() -> None:
    assert report([]) == 1


WATCHED = {
    "cqstore/__init__.py": "",
    "store/__init__.py": "",
    "store/a.py": "def one(x):\n    if x:\n        return 1\n    return 2\n",
    "store/b.py": "print('started')\n\n\ndef two():\n    return 3\n\n\ntwo()\n",
    "tests/test_a.py": """import subprocess
import sys

import pytest

from cqstore.store.a import one


@pytest.fixture
def made():
    return one(0)


def test_true():
    assert one(1) == 1


def test_false(made):
    assert made == 2


def test_that_fails():
    assert one(1) == 2


def test_other_process():
    subprocess.run([sys.executable, "-m", "cqstore.store.b"], check=True)
""",
    "tests/test_b.py": "import sys\n\n\ndef test_trace():\n    sys.settrace(None)\n",
    "tests/test_more.py": "from cqstore.store.a import one\n\n\ndef test_more():\n"
    "    assert one(1) == 1\n",
}


def test_what_runs_at_import_is_tried_by_the_tests_that_touch_little_else() -> None:
    source = b"MOST = 1\n\n\nclass A:\n    most = 2\n\n    def f(self):\n        return 3\n"
    lines = {"A.f": {"return 3": ["near", "far"], "x": ["near"]}}
    other = {"": {"1": ["far"], "2": ["far"]}}
    seconds = {"near": 2.0, "far": 1.0, "elsewhere": 0.1}
    known = Touching(
        seconds, [{"a.py": lines, "b.py": other}, {"b.py": {"": {"3": ["elsewhere"]}}}]
    )
    tests = {m.what: known.tests(m, source) for m in mutations("a.py", source)}
    assert tests["`2` becomes `3`"] == ["near", "far"]
    assert tests["`3` becomes `4`"] == ["far", "near"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("ends", [False, True])
def test_who_touches_a_line_is_found_in_fixtures_and_other_processes_too(
    tmp_path: Path, *, ends: bool
) -> None:
    source = tmp_path / "source"
    ending = {"tests/test_end.py": "import os\n\n\ndef test_ends():\n    os._exit(1)\n"}
    for name, text in (WATCHED | ending if ends else WATCHED).items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    (source / "cqstore" / "store").symlink_to("../store")  # as in the project
    shutil.copytree(ROOT / "tools" / "mutants", source / "tools" / "mutants")
    trees = Trees(source, tmp_path, 2)
    with ThreadPoolExecutor(2) as pool:
        known = touched_by(trees, pool, tmp_path / "kept", "not long")
    names = {test.partition("::")[2] for test in known.seconds}
    assert names == {"test_true", "test_false", "test_other_process", "test_more", "test_trace"}

    def touching(path: str, what: str) -> set[str]:
        source = WATCHED[path].encode()
        (found,) = [each for each in mutations(path, source) if each.what == what]
        return {test.partition("::")[2] for test in known.tests(found, source)}

    assert touching("store/a.py", "`1` becomes `2`") == {"test_true", "test_more"}
    assert touching("store/a.py", "`2` becomes `3`") == {"test_false"}
    assert touching("store/a.py", "`x` is always True") == {"test_true", "test_false", "test_more"}
    assert touching("store/b.py", "`3` becomes `4`") == {"test_other_process"}
    before = next((tmp_path / "kept").iterdir()).stat().st_mtime_ns
    with ThreadPoolExecutor(2) as pool:
        timed = touched_by(trees, pool, tmp_path / "seconds" / "kept", "not long", lines=False)
        assert touched_by(trees, pool, tmp_path / "kept", "not long") == known
    assert timed.of_suites(["tests"]) == timed.of_suites(["tests", "tests/x"])
    assert set(timed.of_suites(["tests"])) == timed.seconds.keys() == known.seconds.keys()
    assert not any(timed.touched)
    assert next((tmp_path / "kept").iterdir()).stat().st_mtime_ns == before, "it was kept"


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0 cut short", b"no database at all" * 99])
def test_a_process_that_was_killed_while_it_wrote_has_touched_nothing(
    tmp_path: Path, data: bytes
) -> None:
    part = tmp_path / "touched.1"
    part.write_bytes(data)
    assert list(_numbers_of(part)) == []
