"""Move queues between backends and verify the result: the functions of ``cqstore migrate``.

These names do not change between releases; the modules below this package may. Each name is
imported when it is first used. No name equals that of a module below, which would replace it.
"""

from cqstore.store.lazy_names import lazy_names

_NAMES = {
    "cqstore.migration.from_log.rebuild_plan": "LogPlanReport make_log_plan",
    "cqstore.migration.plan.planner": "make_plan",
    "cqstore.migration.preflight.examine": "run_preflight=preflight",
    "cqstore.migration.preflight.preflight_report": "PreflightFinding PreflightReport Severity",
    "cqstore.migration.rollback.deleted_topic_policy": "DeletedTopicPolicy",
    "cqstore.migration.rollback.rollback": "finish_migration=finish roll_back=rollback",
    "cqstore.migration.run.run": "RunReport run_plan",
    "cqstore.migration.status": "migration_status=status",
    "cqstore.migration.switch.switch": "SwitchReport switch_store=switch",
    "cqstore.migration.verify.verification": "verify_migration",
    "cqstore.migration.verify.verify_report": "VerifyReport",
    "cqstore.migration.workspace": "Workspace",
}
__all__, __getattr__, __dir__ = lazy_names(__name__, _NAMES, globals())
