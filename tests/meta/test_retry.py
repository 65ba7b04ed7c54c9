"""``--retry-failed`` forgives one unlucky test, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.node_ids import without_group
from tests.kit.product_tree import ROOT
from tests.kit.retry import MAX_RETRIES

ONCE = """
from pathlib import Path

def first_time(name):
    mark = Path(__file__).with_name(name)
    if mark.exists():
        return False
    mark.touch()
    return True
"""
UNLUCKY = ONCE + "\ndef test_unlucky():\n    assert not first_time('unlucky')\n"
BROKEN = "\ndef test_broken():\n    assert False\n"
WORKER = ("-n1", "--dist", "loadgroup", "--max-worker-restart", "0")  # as in the Makefile
FINE = "\ndef test_fine():\n    pass\n"


def pytest_in(
    folder: Path, code: str, *options: str, retry: bool = True
) -> "subprocess.CompletedProcess[str]":
    """Run pytest on one file of tests as CI does, with one worker unless `options` are given."""
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = -p xdist -p tests.kit.share -p tests.kit.retry\n"
    )
    (folder / "test_made_up.py").write_text(code)
    words = [*(["--retry-failed"] if retry else []), *(options or WORKER)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    # Importing the other plugins takes longer than the made-up tests.
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plain = ["-p", "no:cacheprovider", "--assert=plain"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plain, *words, "test_made_up.py"],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def outcome(done: "subprocess.CompletedProcess[str]") -> tuple[int, list[str]]:
    """Return the exit code and the lines that the retry wrote."""
    words = ("FLAKY:", "FAILED AGAIN:", "NOT RETRIED:")
    return done.returncode, [it for it in done.stdout.splitlines() if it.startswith(words)]


def test_a_test_that_fails_once_is_reported_as_flaky_and_the_run_passes(tmp_path: Path) -> None:
    code = UNLUCKY + FINE
    assert outcome(pytest_in(tmp_path, code)) == (0, ["FLAKY: test_made_up.py::test_unlucky"])


def test_without_the_option_a_failure_is_final(tmp_path: Path) -> None:
    assert outcome(pytest_in(tmp_path, UNLUCKY, "-n0", retry=False)) == (1, [])


def test_without_workers_it_is_the_same_and_a_broken_test_fails_the_run(tmp_path: Path) -> None:
    code = UNLUCKY + BROKEN
    assert outcome(pytest_in(tmp_path, code, "-s")) == (
        1, ["FLAKY: test_made_up.py::test_unlucky", "FAILED AGAIN: test_made_up.py::test_broken"],
    )  # fmt: skip


def test_a_retry_has_the_options_share_environment_and_id_of_the_first_run(tmp_path: Path) -> None:
    """A test in a group is drawn by the same id, and names with odd characters are found."""
    code = (
        ONCE
        + """
import os, pytest

@pytest.mark.long
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("word", ["a//b::c@d [e", "./x"])
def test_unlucky(word, request, drawn_places, capfd):
    option = request.config.option
    node = request.node.nodeid.removesuffix("@spark")
    line = f"{node} {drawn_places(1000, 8)} {option.seed} {option.markexpr} {os.environ['GIVEN']}"
    with Path(__file__).with_name("lines").open("a") as lines:
        print(line, file=lines)
    assert not first_time(str(len(word)))
"""
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIVEN", "yes")
        done = pytest_in(
            tmp_path, code, "-n2", "--dist", "loadgroup", "-m", "long", "-W", "ignore",
            "--share", "99/100", "--seed", "word",
        )  # fmt: skip
    assert len(outcome(done)[1]) == 2, done.stdout
    assert done.returncode == 0
    ran = (tmp_path / "lines").read_text().splitlines()
    assert ran[:2] == ran[2:]
    assert ran[0].endswith("word long yes")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ValueError\n" + UNLUCKY, []),
        ("", []),
        (UNLUCKY + "\nimport os\n\ndef test_crashes():\n    os._exit(9)\n", ["a worker crashed"]),
        (
            ONCE + "import os\n\ndef test_crashes_once():\n    first_time('it') and os.abort()\n",
            ["a worker crashed"],
        ),
    ],
    ids=["not collected", "no test", "crash beside it", "crash once"],
)
def test_what_is_no_bad_luck_is_not_retried(tmp_path: Path, code: str, said: list[str]) -> None:
    done = pytest_in(tmp_path, code)
    assert done.returncode != 0
    assert outcome(done)[1] == [f"NOT RETRIED: {line}" for line in said]
    assert "retrying" not in done.stdout


def test_an_error_of_pytest_itself_is_not_retried(tmp_path: Path) -> None:
    hook = "def pytest_runtest_logfinish(nodeid, location):\n    raise ValueError\n"
    (tmp_path / "conftest.py").write_text(hook)
    for workers in ("-n0", "-n1"):
        assert outcome(pytest_in(tmp_path, BROKEN, workers)) == (3, [])


def test_more_failures_than_bad_luck_explains_are_not_retried(tmp_path: Path) -> None:
    several = (
        "import pytest\n"
        + ONCE
        + """
@pytest.mark.parametrize("number", range(COUNT))
def test_unlucky(number):
    assert not first_time(str(number))
"""
    )
    (tmp_path / "few").mkdir()
    done = pytest_in(tmp_path / "few", several.replace("COUNT", "2"))
    assert (done.returncode, len(outcome(done)[1])) == (0, 2)
    failures = MAX_RETRIES + 1
    found = outcome(pytest_in(tmp_path, several.replace("COUNT", str(failures)), "-n0"))
    assert found == (
        1, [f"NOT RETRIED: {failures} tests failed, and at most {MAX_RETRIES} are retried"]
    )  # fmt: skip


def test_a_run_that_stopped_at_its_first_failure_is_not_retried(tmp_path: Path) -> None:
    found = outcome(pytest_in(tmp_path, UNLUCKY + BROKEN, "-x"))
    assert found == (1, ["NOT RETRIED: not all tests have run"])


@pytest.mark.parametrize("second", ["pytest.skip()", "pytest.xfail()", "os._exit(0)"])
def test_a_retry_that_does_not_run_the_test_to_its_end_has_failed(
    tmp_path: Path, second: str
) -> None:
    code = (
        ONCE
        + f"import os, pytest\n\ndef test_it():\n    assert not first_time('it')\n    {second}\n"
    )
    found = outcome(pytest_in(tmp_path, code, "-s"))
    assert found == (1, ["FAILED AGAIN: test_made_up.py::test_it"])


def test_in_ci_the_long_runs_retry_and_no_others(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\necho "$1" "RETRY=$RETRY"\n')
    make.chmod(0o755)
    environment = os.environ | {"SEED": "word", "MAKEFLAGS": ""}
    search = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ci = subprocess.run(
        [ROOT / ".ci" / "run"], env=environment | search, capture_output=True, text=True, check=True
    )
    targets = [line.split() for line in ci.stdout.splitlines() if "RETRY=" in line]
    assert ["test-share", "RETRY=1"] in targets
    retried = {}
    for target in ("check", "test", "test-share", "fuzz", "interop"):
        recipe = subprocess.run(
            ["make", "-C", ROOT, "-n", target, "RETRY=1"],
            env=environment, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        retried[target] = "--retry-failed" in recipe
    assert [target for target, is_so in retried.items() if is_so] == [
        "test-share",
        "fuzz",
        "interop",
    ]


def test_an_id_loses_its_group_and_nothing_else() -> None:
    assert without_group("a.py::test_b[c@d]@spark") == "a.py::test_b[c@d]"
    assert without_group("a.py::test_b@spark") == "a.py::test_b"
    assert without_group("a.py::test_b[c@d]") == "a.py::test_b[c@d]"
    assert without_group("a.py::test_b") == "a.py::test_b"
