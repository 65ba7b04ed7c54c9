"""Comparing queues, and saying whether what was made may be published."""

from migration.plan import Plan
from migration.workspace import Workspace


def verified(space: Workspace, plan: Plan) -> str | None:
    """Return ``None`` if the new queues were compared and found equal, else why not."""
    _ = space, plan
    return "nothing has been compared"
