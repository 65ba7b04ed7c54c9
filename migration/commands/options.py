"""Options of several commands of ``cqstore migrate``."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import check_is_there, note
from cqstore.cli.path_marks import OutputPath
from cqstore.migration.tasks import NO_SPARK
from cqstore.migration.workspace import Workspace

Space = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        metavar="PATH",
        help="Working folder of the migration. Default: DIR/cqstore/migration.",
    ),
    OutputPath(locked=False, in_own_folder=True),
]

Master = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help=f"URL of the Spark master, or {NO_SPARK} to use all cores without Spark.",
    ),
]


def workspace_of(root: Path, given: Path | None) -> Workspace:
    """Return the workspace of a migration of ``root``, which must exist."""
    check_is_there(root)
    return Workspace.of(root.absolute(), given)


def note_kept_report(space: Workspace) -> None:
    """Print where the last report is kept, after a migration has ended."""
    history = space.history()
    if history and (kept := history[-1].get("report")):
        note(f"the report of the last comparison is kept: {kept}")
