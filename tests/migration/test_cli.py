"""``cqstore migrate`` as a user meets it: what it prints, its exit codes, a sentence a refusal."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.run.run import run_plan
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.service.message_store import MessageStore
from tests.kit import commands
from tests.kit.migrations import NO_SPARK
from tests.kit.running import COMMAND, until
from tests.kit.served import served
from tests.kit.tree import tree_digest
from tools.bench.sample_store import make_store

NONE = ("--master", NO_SPARK)
REFUSED, DIFFERENT = 2, 1


def run(verb: str, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = commands.run(["migrate", verb, *words])
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def record(verb: str, *words: object, code: int = 0) -> dict[str, object]:
    found: dict[str, object] = json.loads(run(verb, *words, "--output", "json", code=code).stdout)
    return found


def refusal(verb: str, *words: object, code: int = REFUSED) -> str:
    """Run what is refused; return the sentence, all that is said."""
    done = run(verb, *words, code=code)
    assert done.stdout == ""
    assert done.stderr.startswith("cqstore: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of 100 units in each of 10 queues."""
    make_store(tmp_path / "store", 1_000, 10)
    return tmp_path / "store"


def test_a_plan_of_a_store_in_use_says_so_and_changes_nothing_of_it(
    root: Path, tmp_path: Path
) -> None:
    space = ("--workspace", tmp_path / "space")
    with MessageStore.open(root):
        folders = [root / "commitlog", root / "consumequeue"]  # to read the lock file would free it
        before = [*map(tree_digest, folders)]
        done = run("plan", root, "--output", "json", *space)
        assert [*map(tree_digest, folders)] == before
    assert json.loads(done.stdout)["openedBy"] == os.getpid()
    assert (
        f"process {os.getpid()} has the store open: the plan does not contain messages"
        in done.stderr
    )
    again = record("plan", root, "--workspace", tmp_path / "other")
    assert again["openedBy"] is None


@pytest.mark.slow
def test_there_and_back(root: Path) -> None:
    whole = served(root)
    assert record("status", root)["stage"] == "nothing"
    assert record("preflight", root)
    planned = record("plan", root, "--segment-units", 250)
    assert (planned["units"], planned["queues"], planned["segments"]) == (1_000, 10, 5)
    ran = record("run", root, *NONE)
    assert (ran["moved"], ran["units"], ran["plan"]) == (5, 1_000, planned["plan"])
    assert record("run", root, *NONE)["moved"] == 0
    assert record("verify", root, *NONE)["verdict"] == "equal"
    assert record("status", root)["stage"] == "made"
    switched = record("switch", root)
    assert (switched["before"], switched["state"]) == ("file", "rocksdb")
    assert served(root) == whole
    assert record("status", root)["stage"] == "switched"
    back = record("rollback", root)
    assert (back["before"], back["state"]) == ("rocksdb", "file")
    assert served(root) == whole
    assert record("status", root)["stage"] == "nothing"


def test_a_difference_is_told_by_the_exit_code(root: Path) -> None:
    plan = make_plan(root)
    run_plan(root, master=NO_SPARK)
    queue = root / "consumequeue" / "topic_000000" / "3" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    data[40 * 20 + 19] ^= 1  # the tags code of unit 40
    queue.write_bytes(data)
    report = record("verify", root, *NONE, code=DIFFERENT)
    assert report["verdict"] == "different"
    assert refusal("switch", root).startswith(
        "cqstore: the new queues are not verified: the last comparison found differences"
    )
    assert plan.source == "file"


def test_a_run_takes_the_settings_of_its_plan_and_no_others(root: Path) -> None:
    conf = root.with_name("broker.conf")
    conf.write_text("enableConsumeQueueExt=false\n")
    run("plan", root, "--config", conf)
    other = root.with_name("other.conf")
    other.write_text("enableLmq=true\nenableConsumeQueueExt=false\n")
    reported = refusal("run", root, "--config", other, *NONE)
    assert "enableLmq is True, but False in the plan" in reported
    assert "enableConsumeQueueExt" not in reported
    assert record("run", root, "--config", conf, *NONE)["units"] == 1_000


# ---- refused


@pytest.mark.parametrize("master", ["nonsense", "local[x]", "spark:/x", ""])
def test_an_unknown_master(root: Path, master: str) -> None:
    make_plan(root)
    assert f"invalid Spark master {master!r}: expected" in refusal("run", root, "--master", master)
    assert not list(Workspace.of(root).segments.glob("*"))


def test_steps_out_of_order(root: Path) -> None:
    nothing = "no migration found: run cqstore migrate plan first"
    for verb in ("run", "switch", "rollback", "finish"):
        assert nothing in refusal(verb, root, *(NONE if verb == "run" else ()))
    assert "no migration is in progress" in refusal("verify", root, *NONE)
    assert not (root / "cqstore").exists()
    make_plan(root)
    assert "a plan already exists" in refusal("plan", root)
    assert "no new queues to compare" in refusal("verify", root, *NONE)
    assert "no new queues found: run cqstore migrate run first" in refusal("switch", root)
    run_plan(root, master=NO_SPARK)
    assert "are not verified" in refusal("switch", root)
    verify_migration(root, master=NO_SPARK)
    run("switch", root)


def test_an_old_plan_is_named_and_ended_and_its_report_is_kept(root: Path) -> None:
    made = make_plan(root)
    reported = refusal("plan", root, "--to", "file")
    assert (
        f"already exists (made at {made.created} to move file to rocksdb). Continue it" in reported
    )
    assert "cqstore migrate rollback" in reported
    assert "finish" not in reported
    run_plan(root, master=NO_SPARK)
    verify_migration(root, master=NO_SPARK)
    space = Workspace.of(root)
    proof = [path.read_bytes() for path in (space.report, space.report_page)]
    run("switch", root)
    reported = refusal("plan", root, "--to", "file")
    assert "move file to rocksdb). The store was switched with it" in reported
    assert "cqstore migrate finish" in reported
    assert "cqstore migrate rollback" in reported
    reported = refusal("run", root, *NONE)
    assert "has already been carried out and the store was switched" in reported
    assert "cqstore migrate finish" in reported
    done = run("finish", root)
    kept = Path(done.stderr.split("is kept: ")[1].strip())
    assert [path.read_bytes() for path in (kept.with_suffix(".json"), kept)] == proof
    assert run("plan", root, "--to", "file").returncode == 0
    done = run("rollback", root)
    assert "is kept" not in done.stderr  # this one has compared nothing
    assert kept.exists()


def test_two_at_once(root: Path) -> None:
    make_plan(root)
    with Workspace.of(root).held():
        for verb in ("run", "switch", "rollback"):
            words = NONE if verb == "run" else ()
            assert "another migration command is using this workspace" in refusal(
                verb, root, *words
            )


@pytest.mark.slow
def test_ctrl_c_is_one_sentence(root: Path) -> None:
    """On a terminal it reaches the driver and its workers alike."""
    make_plan(root, segment_units=100)
    space = Workspace.of(root)
    words = [*COMMAND, "run", str(root), *NONE, "--max-bytes-per-second", "1"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        until(process, lambda: len(list(space.segments.glob("*/progress"))) > 1)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    kept = "finished segments are kept. Run the command again to continue"
    assert err == f"cqstore: stopped; {kept}\n"
