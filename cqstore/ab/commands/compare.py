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
    before: Annotated[
        Path, typer.Argument(metavar="A", help="First result file, of ab run or ab live.")
    ],
    after: Annotated[
        Path, typer.Argument(metavar="B", help="Second result file, made by the same verb as A.")
    ],
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Compare two results: what changed for each side between two days or machines.

    Results of ab run must have the same store, trace and --cache. Within each result all sides must
    have given the same answers. Workloads are compared if they ran the same way in both results.
    Exit code 2 if nothing can be compared.

    Examples:
        cqstore ab compare monday.json friday.json
        cqstore ab compare old-disk.json new-disk.json --output json
    """
    results = read_result(before), read_result(after)
    need_extras()
    changes = compare_results(*results)
    print_changes(changes, kind)
    if not changes.changes:
        raise typer.Exit(EXIT_NOTHING)
