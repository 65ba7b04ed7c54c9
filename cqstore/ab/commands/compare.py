"""``cqstore ab compare``: two results, of two machines or two days."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.ab.extras import need_extras
from cqstore.ab.judging.result_changes import compare_results
from cqstore.ab.report.printing import print_changes
from cqstore.ab.results.result_file import read_result
from cqstore.cli.options import Format
from cqstore.cli.output import OutputFormat

EXIT_NOTHING = 2


def compare_command(
    before: Annotated[Path, typer.Argument(metavar="A", help="A result.json of cqstore ab.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Another, of the same store.")],
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Print what changed for each side from one result to another, of two machines or two days.

    Figures are compared only where store, trace, page cache and workload are the same. Exit code 2
    if none can be.
    """
    results = read_result(before), read_result(after)
    need_extras()
    changes = compare_results(*results)
    print_changes(changes, kind)
    if not changes.changes:
        raise typer.Exit(EXIT_NOTHING)
