"""A run on executors of its own: ``python -m tests.kit.clustered DIR BYTES_PER_SECOND [twice]``.

``twice``: each segment is two tasks at once first. Prints the run's report, JSON.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from cqstore.migration.plan.plan import read_plan
from cqstore.migration.run.run import move_segment, run_plan
from cqstore.migration.tasks import run_tasks
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.spark.spark_session import spark_session

MASTER = "local-cluster[2,1,1024]"


def move_twice(space: Workspace, rate: float) -> None:
    """Move every segment by two tasks; both say that the same attempt has done it."""
    count = len(read_plan(space).segments)
    items = [
        json.dumps(
            {"workspace": str(space.root), "segment": number, "rate": rate, "timestamps": True}
        )
        for number in range(count)
    ]
    space.segments.mkdir()
    reported = run_tasks(move_segment, [item for item in items for _ in range(2)], MASTER)
    assert reported[::2] == reported[1::2]
    assert len(set(reported)) == count


def main() -> None:
    root, rate = Path(sys.argv[1]), float(sys.argv[2])
    with spark_session("cluster", MASTER) as spark:
        assert spark.sparkContext.master == MASTER
        if sys.argv[3:] == ["twice"]:
            move_twice(Workspace.of(root), rate / 2)
        report = run_plan(root, master=MASTER, bytes_per_second=rate)
        verified = verify_migration(root, master=MASTER)
    sys.stdout.write(json.dumps({**asdict(report), "verdict": verified.verdict}))


if __name__ == "__main__":
    main()
