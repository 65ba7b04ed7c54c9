"""The handler of bus errors: a program's own decision, and what holds without one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.core import BUS_HANDLER
from tests.kit.cut_log_child import CUTS, questions
from tests.kit.product_tree import ROOT

pytestmark = pytest.mark.slow  # a process each

CAUGHT = f"""
import sys
from pathlib import Path
from cqstore.store.settings.config import StoreConfig
from tests.store.core.test_maps import CONFIG, COUNT, keyed, pulled, filled
import tests.store.core.test_maps as maps
maps.CONFIG = CONFIG.model_copy(update={{"handle_bus_errors": "asked" in sys.argv}})
with filled(Path(sys.argv[1])) as store:
    for _ in range(8):  # files of queues are mapped when they are read again
        assert pulled(store, 290) == [290, 291, 292, 293, 294]
    assert [keyed(store, number) for number in range(COUNT)] == [[at] for at in range(COUNT)]
    mask = next(line for line in open("/proc/self/status") if line.startswith("SigCgt"))
print(int(mask.split()[1], 16) >> {signal.SIGBUS - 1} & 1)
"""


def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    without = {name: value for name, value in os.environ.items() if name != BUS_HANDLER}
    without["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":handle_sigbus=0"
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, timeout=120,
        env=without | environment, cwd=ROOT,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("requested", "environment", "is_caught"),
    [("no", {}, 0), ("asked", {}, 1), ("no", {BUS_HANDLER: "1"}, 1), ("no", {BUS_HANDLER: "0"}, 0)],
)
def test_the_signal_is_handled_where_somebody_asked(
    tmp_path: Path, requested: str, environment: dict[str, str], is_caught: int
) -> None:
    done = run("-c", CAUGHT, str(tmp_path / "store"), requested, **environment)
    assert (done.stdout, done.stderr) == (f"{is_caught}\n", "")


def test_the_command_asks_for_itself_and_what_it_starts() -> None:
    reported = run(
        "-c",
        "import os, sys; from cqstore.cli import main; sys.argv[:] = ['cqstore', '--version']\n"
        f"try: main()\nfinally: print(os.environ[{BUS_HANDLER!r}], file=sys.stderr)",
    )
    assert reported.stderr == "1\n"


def requested_of_child(root: Path, ask: str, cut: str) -> Any:
    """Return what is answered without a handler of the signal; ``None``: the process died of it."""
    done = run("-m", "tests.kit.cut_log_child", str(root), "file", ask, cut)
    if done.returncode == -signal.SIGBUS:
        return None
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "ask", ["pull", pytest.param("pulled_before", marks=pytest.mark.long), "query", "put_sync"]
)
def test_a_cut_inside_the_last_page_is_an_error(tmp_path: Path, ask: str) -> None:
    found = requested_of_child(tmp_path, ask, "inside the last record")
    assert any("shrunk" in error for error in found["errors"])


@pytest.mark.long
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("ask", list(questions()))
def test_no_answer_is_of_a_page_that_was_cut(tmp_path: Path, ask: str, cut: str) -> None:
    found = requested_of_child(tmp_path, ask, cut)
    if found is None:
        assert ask.startswith("put") or cut != "inside the last record"  # a put goes further
    else:
        assert found["right"] + len(found["errors"]) > 0


CUT_FILES = """
import sys
from pathlib import Path
from tests.store.core import test_maps as maps
maps.test_an_index_file_that_is_cut_is_told_as_the_twin_tells_it(Path(sys.argv[1]) / "index")
maps.test_a_queue_file_that_is_cut_is_told_as_the_twin_tells_it(Path(sys.argv[1]) / "queue")
print("both")
"""


def test_cut_files_of_queues_and_index_are_errors(tmp_path: Path) -> None:
    done = run("-c", CUT_FILES, str(tmp_path))
    assert (done.stdout, done.stderr) == ("both\n", "")
