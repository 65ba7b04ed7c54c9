"""``cqstore migrate status``."""

from cqstore.cli.options import Dir, Format
from cqstore.cli.output import OutputFormat, output
from cqstore.migration.commands.options import Space, workspace_of
from cqstore.migration.status import status as status_of
from cqstore.store.path_kind import exists
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.settings.config import StoreConfig


def status(root: Dir, workspace: Space = None, kind: Format = OutputFormat.TABLE) -> None:
    """Show the progress of the migration. Changes nothing.

    Shows the stage, the size of the plan, the units moved so far, and the last step.

    Examples:
        cqstore migrate status DIR
        cqstore migrate status DIR --output json
    """
    space = workspace_of(root, workspace)
    if not exists(space.plan):
        resolve_layout(root, StoreConfig(), read_only=True)  # refuses where no store is
    output(kind).record(status_of(root, space))
