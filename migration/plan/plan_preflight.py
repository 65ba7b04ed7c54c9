"""PlanPreflight: what a preflight leaves to the tasks of a plan, and refusals of both together."""

from collections.abc import Collection
from pathlib import Path

from cqstore.migration.plan.part_task import PartChecks
from cqstore.migration.plan.parts import PlanParts
from cqstore.migration.preflight.examine import Examined
from cqstore.migration.preflight.obstacles import refuse
from cqstore.migration.preflight.preflight_report import Severity
from cqstore.store.queue.bulk import BulkBackend
from cqstore.store.service.opening.components import components_of

STEP = "plan the move"


class PlanPreflight:
    """The preflight of a plan, if there was one: its open store, and what refuses the plan."""

    def __init__(
        self, examined: Examined | None, accepted: Collection[str], source: str | None
    ) -> None:
        self._accepted = accepted
        found = examined.report.refusals if examined is not None else []
        self._refusals = [each for each in found if each.code not in accepted]
        store = examined.store if examined is not None else None
        name = components_of(store).queues.backends()[0].name if store is not None else ""
        self.store = store if source in {None, name} else None

    def refuse_now(self, root: Path) -> None:
        """Refuse the plan if the preflight found an obstacle.

        Raises:
            RefusedStoreError: the error has all reasons.
        """
        refuse(self._refusals, STEP, root)

    def checks(self) -> PartChecks | None:
        """Return what tasks check because the preflight did not; ``None``: nothing."""
        if self.store is None:
            return None
        log = components_of(self.store).log
        return PartChecks(log.min_phy_offset(), log.max_phy_offset())

    def refuse_with(
        self, parts: PlanParts, checks: PartChecks, to: BulkBackend, root: Path
    ) -> None:
        """Refuse the plan with all obstacles of the preflight and of the tasks.

        Raises:
            RefusedStoreError: there are some.
            StoreError: a single queue cannot be read, and nothing else was found.
        """
        found = [
            each.at(root)
            for each in parts.findings(checks, to)
            if each.severity is Severity.REFUSE and each.code not in self._accepted
        ]
        if not self._refusals and [each.code for each in found] == ["unreadable-queues"]:
            parts.raise_error()
        refuse([*found, *self._refusals], STEP, root)
