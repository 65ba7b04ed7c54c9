"""Fills a small disk in the middle of a step. Run by ``test_full_disk``, on a mount of its own.

``python -m tests.migration.full_disk STEP SMALL LARGE``: SMALL is a disk of 32 MB, LARGE a folder
with more room. What the step was to write lies on SMALL. Prints ``right`` if all was.
"""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cqstore.migration.plan.plan import Plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.run.segment import write_segment
from cqstore.migration.switch.switch import switch
from cqstore.migration.tasks import NO_SPARK
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import DiskFullError, os_errors
from tests.kit.running import COMMAND, finished
from tests.kit.served import served
from tools.bench.sample_store import make_store

UNITS, QUEUES = 40_000, 20


class Ballast:
    """A file that takes all the room there is, also while others take and free some."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "ballast"

    def fill(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            for size in (1 << 20, 1):
                with suppress(DiskFullError), os_errors("fill the disk", self._path):
                    while True:
                        file.write(bytes(size))

    def drop(self) -> None:
        self._path.unlink()


def refused(call: Callable[[], object], disk: Path) -> None:
    """The call ends with one clear error that names a file on the disk."""
    with pytest.raises(DiskFullError) as found:
        call()
    path = found.value.path
    assert path is not None
    assert path.is_relative_to(disk)


def refused_on_the_command_line(verb: str, root: Path, space: Workspace, *words: str) -> None:
    whole = [*COMMAND, verb, str(root), "--workspace", str(space.root), *words]
    done = subprocess.run(whole, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 2, done
    assert done.stderr.startswith("cqstore: "), done
    assert done.stderr.count("\n") == 1, done
    assert "space" in done.stderr, done
    more = "more bytes are needed. Free space and run cqstore migrate run again"
    assert verb != "run" or more in done.stderr


def store_and_plan(small: Path, large: Path) -> tuple[Path, Workspace, Plan]:
    """A store on the large disk, with its workspace on the small one."""
    root, space = large / "store", Workspace(small / "work")
    make_store(root, UNITS, QUEUES)
    return root, space, make_plan(root, workspace=space, segment_units=UNITS // QUEUES)


def check(root: Path, space: Workspace) -> None:
    """Do what follows a run: all is right."""
    assert verify_migration(root, workspace=space, master=NO_SPARK).equal


def full_while_planning(small: Path, large: Path) -> None:
    root, space, ballast = large / "store", Workspace(small / "work"), Ballast(small)
    make_store(root, UNITS, QUEUES)
    space.root.mkdir()
    ballast.fill()
    refused(lambda: make_plan(root, workspace=space), small)
    refused_on_the_command_line("plan", root, space)
    assert not space.plan.exists()
    ballast.drop()
    make_plan(root, workspace=space)
    run_plan(root, workspace=space, master=NO_SPARK)
    check(root, space)


def full_while_running(small: Path, large: Path) -> None:
    root, space, plan = store_and_plan(small, large)
    ballast = Ballast(small)

    def watch(done: int, units: int) -> None:
        if len(finished(space)) > 2 and done < units:
            ballast.fill()

    rate = 28 * UNITS / 5  # two thirds of a second a segment, two at once
    refused(
        lambda: run_plan(
            root, workspace=space, master=NO_SPARK, progress=watch, bytes_per_second=rate
        ),
        small,
    )
    before = finished(space)
    assert 2 < len(before) < len(plan.segments)
    ballast.fill()
    refused_on_the_command_line("run", root, space, "--master", NO_SPARK)
    assert finished(space) == before
    assert not space.made.root.exists()
    ballast.drop()
    run_plan(root, workspace=space, master=NO_SPARK)
    after = finished(space)
    assert {number: after[number] for number in before} == before
    check(root, space)


def full_while_put_together(small: Path, large: Path) -> None:
    root, space, plan = store_and_plan(small, large)
    for number in range(len(plan.segments)):
        write_segment(space, plan, number)
    before, ballast = finished(space), Ballast(small)
    ballast.fill()
    refused(lambda: run_plan(root, workspace=space, master=NO_SPARK), small)
    refused_on_the_command_line("run", root, space, "--master", NO_SPARK)
    assert not space.made.root.exists()
    ballast.drop()
    assert run_plan(root, workspace=space, master=NO_SPARK).moved == 0
    assert finished(space) == before
    check(root, space)


def full_while_published(small: Path, large: Path) -> None:
    """The store lies on the small disk, its workspace on another one: files are copied."""
    root, space, ballast = small / "store", Workspace(large / "work"), Ballast(small)
    make_store(root, UNITS, QUEUES)
    make_plan(root, workspace=space)
    run_plan(root, workspace=space, master=NO_SPARK)
    check(root, space)
    whole = served(root)
    (root / "cqstore").mkdir(exist_ok=True)
    ballast.fill()
    refused(lambda: switch(root, workspace=space), small)
    refused_on_the_command_line("switch", root, space)
    assert served(root) == whole
    ballast.drop()
    switch(root, workspace=space)
    assert served(root) == whole
    rollback(root)
    assert served(root) == whole


STEPS = {
    "plan": full_while_planning,
    "run": full_while_running,
    "assemble": full_while_put_together,
    "publish": full_while_published,
}

if __name__ == "__main__":
    STEPS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
    sys.stdout.write("right")
