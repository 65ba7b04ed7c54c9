"""The main job in one go: a store on files, its queues moved to RocksDB on Spark, and the proof.

500,000 messages over 5,000 queues are put, then: preflight, plan, run, verify, switch. Every queue
is read from its first to its last message before and after. The exit code is 1 if one differs.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.preflight import preflight
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.tasks import ready
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tools.bench.sample_messages import put_messages, read_back

MESSAGES = 500_000
TOPICS, QUEUES_A_TOPIC = 625, 8
LIST = 128
MASTER = "local[2]"
CONFIG = StoreConfig(mapped_file_size_commit_log=64 << 20)
T = TypeVar("T")


def main() -> int:
    """Run the whole story and print a table."""
    console = Console()
    table = Table("step", "seconds", "units/s", "result")
    root = Path(tempfile.mkdtemp(prefix="cqstore-demo-")) / "store"

    def step(name: str, work: Callable[[], T], to_text: Callable[[T], str], units: int = 0) -> T:
        console.print(f"… {name}", style="dim")
        started = time.perf_counter()
        outcome = work()
        seconds = time.perf_counter() - started
        rate = f"{units / seconds:,.0f}" if units else ""
        table.add_row(name, f"{seconds:.1f}", rate, to_text(outcome))
        return outcome

    step("put on files", lambda: put(root), str, MESSAGES)
    before = step("read", lambda: read_all(root), lambda found: f"digest {found[1][:12]}")
    step(
        "preflight",
        lambda: preflight(root, CONFIG),
        lambda found: f"{len(found.refusals)} findings forbid it",
    )
    step("plan", lambda: make_plan(root, CONFIG, segment_units=125_000), lambda plan: (
        f"{plan.queues:,} queues, {plan.units:,} units, {len(plan.segments)} segments"
    ), MESSAGES)  # fmt: skip
    with ready(MASTER):
        step("run on Spark", lambda: run_plan(root, master=MASTER), lambda done: (
            f"{done.bytes / done.units:.1f} bytes a unit"
        ), MESSAGES)  # fmt: skip
        report = step("verify on Spark", lambda: verify_migration(root, master=MASTER), lambda it: (
            it.verdict
        ), MESSAGES)  # fmt: skip
    step("switch", lambda: switch(root, CONFIG), lambda done: f"the state is now {done.state}")
    after = step("read", lambda: read_all(root), lambda found: f"digest {found[1][:12]}")
    console.print(table)
    equal = report.equal and before[1:] == after[1:] and (before[0], after[0]) == BACKENDS
    console.print("equal" if equal else "DIFFERENT")
    console.print(f"the report, for a browser: {Workspace.of(root).report_page}", soft_wrap=True)
    console.print(
        f"the store: {root} (cqstore migrate rollback brings the files back)", soft_wrap=True
    )
    return 0 if equal else 1


BACKENDS = ("file", "rocksdb")


def put(root: Path) -> str:
    """Put all messages in lists; a refusal ends the demo."""
    with MessageStore.open(root, CONFIG, backend="file") as store:
        put_messages(store, MESSAGES, TOPICS, QUEUES_A_TOPIC, repeats=4, limit=LIST)
    return f"{MESSAGES:,} messages"


def read_all(root: Path) -> tuple[str, str, int]:
    """Return the name of the store's backend, a digest of all messages and their number."""
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        return components_of(store).queues.name, *read_back(store)


if __name__ == "__main__":
    sys.exit(main())
