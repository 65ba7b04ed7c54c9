"""A step of a migration that kills itself: ``python -m tests.kit.cut_short COUNT STEP DIR [call]``.

See ``killed_at_change``.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from cqstore.migration.plan.plan import read_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.service.offline.mode import StoreMode
from tests.kit.killed_at_change import (
    ALL,
    changes_until_killed,
    run_until_killed,
    run_until_killed_at_call,
)
from tests.kit.plan_parts import plan_in_parts

_STEPS: dict[str, Callable[[Path], object]] = {
    "plan": plan_in_parts,
    "run": lambda root: run_plan(root, master="none"),
    "verify": lambda root: verify_migration(root, master="none"),
    "switch": switch,
    "switch to both": lambda root: switch(root, to=both_after(root)),
    "rollback": rollback,
}


def both_after(root: Path) -> StoreMode:
    """Return the state in which both backends are written, and the new one is read."""
    return StoreMode(f"double-write-{read_plan(Workspace.of(root)).target}")


def cut_short(root: Path, step: str, count: int = ALL, *, at_call: bool = False) -> int | None:
    """Run the step in a process; return how many changes it made, ``None`` if it was killed.

    A change is one of the store's files. ``at_call``: of those that RocksDB makes, too.
    """
    words = ["call"] if at_call else []
    return changes_until_killed("tests.kit.cut_short", count, step, root, *words)


def main() -> None:
    count, step, name, *at_call = sys.argv[1:]
    root = Path(name)
    if at_call:
        run_until_killed_at_call(int(count), lambda: _STEPS[step](root), root)
    else:
        run_until_killed(int(count), lambda: _STEPS[step](root), f"{root}/")


if __name__ == "__main__":
    main()
