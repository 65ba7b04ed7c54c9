"""``cqstore migrate finish``."""

from cqstore.cli.options import ConfigFile, Dir, Format, read_config
from cqstore.cli.output import OutputFormat, output
from cqstore.migration.commands.options import Space, note_kept_report, workspace_of
from cqstore.migration.rollback.rollback import finish as finish_switch
from cqstore.store.paths import StorePaths


def finish(
    root: Dir,
    workspace: Space = None,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """End the migration: the old queues move to DIR/cqstore/replaced, to be removed by you.

    There is no roll-back afterwards.
    """
    space = workspace_of(root, workspace)
    left = finish_switch(root, read_config(config, root), workspace=space)
    output(kind).record({"movedAway": left, "to": str(StorePaths(root).replaced)})
    note_kept_report(space)
