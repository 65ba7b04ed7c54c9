"""``cqstore migrate finish``."""

from cqstore.cli.options import ConfigFile, Dir, Format, read_config
from cqstore.cli.output import OutputFormat, output
from cqstore.migration.commands.options import Space, note_kept_report, workspace_of
from cqstore.migration.rollback.rollback import finish as finish_switch
from cqstore.migration.workspace import Workspace
from cqstore.store.paths import StorePaths


def finish(
    root: Dir,
    workspace: Space = None,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """End the migration: move the old queues to DIR/cqstore/replaced.

    The store must be closed, with the new queues as its only backend. You cannot roll back
    afterwards. Delete the old queues from DIR/cqstore/replaced yourself.

    Examples:
        cqstore migrate finish DIR
        cqstore migrate finish DIR --workspace WORKSPACE
    """
    space = Workspace.of_switch(root, workspace_of(root, workspace))
    left = finish_switch(root, read_config(config, root), workspace=space)
    output(kind).record({"movedAway": left, "to": str(StorePaths(root).replaced)})
    note_kept_report(space)
