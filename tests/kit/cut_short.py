"""A step of a migration that kills itself: ``python -m tests.kit.cut_short COUNT STEP DIR``.

See ``killed_at_change``.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from tests.kit.killed_at_change import ALL, changes_until_killed, run_until_killed
from tests.kit.plan_parts import plan_in_parts

_STEPS: dict[str, Callable[[Path], object]] = {
    "plan": plan_in_parts,
    "run": lambda root: run_plan(root, master="none"),
    "verify": lambda root: verify_migration(root, master="none"),
    "switch": switch,
    "rollback": rollback,
}


def cut_short(root: Path, step: str, count: int = ALL) -> int | None:
    """Run the step in a process; return how many changes it made, ``None`` if it was killed."""
    return changes_until_killed("tests.kit.cut_short", count, step, root)


def main() -> None:
    count, step, root = sys.argv[1:]
    run_until_killed(int(count), lambda: _STEPS[step](Path(root)))


if __name__ == "__main__":
    main()
