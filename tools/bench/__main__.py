"""``python -m tools.bench [WORD …]``: run the workloads whose names hold a word, as a table."""

import os
import platform
import sys

from rich.console import Console
from rich.table import Table

from tools.bench.arrow_scans import ARROW_SCANS
from tools.bench.starting import STARTING
from tools.bench.workloads import WORKLOADS, Reached


def main(words: list[str]) -> None:
    """Run the workloads and print each with its raw baseline and the ratio of the two."""
    console = Console()
    console.print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    table = Table("workload", "here", "raw baseline", "ratio", "unit")
    every = WORKLOADS | STARTING | ARROW_SCANS
    for name, workload in every.items():
        if words and not any(word in name for word in words):
            continue
        console.print(f"… {name}", style="dim")
        result: Reached = workload()
        table.add_row(
            name,
            f"{result.here:,.0f}",
            f"{result.raw:,.0f}" if result.raw else "",
            f"{result.here / result.raw:.3f}" if result.raw else "",
            result.unit,
        )
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
