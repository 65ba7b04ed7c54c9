from cqstore.migration.from_log.rebuild_plan import LogPlanReport as LogPlanReport
from cqstore.migration.from_log.rebuild_plan import make_log_plan as make_log_plan
from cqstore.migration.plan.planner import make_plan as make_plan
from cqstore.migration.preflight.examine import preflight as _preflight
from cqstore.migration.preflight.preflight_report import PreflightFinding as PreflightFinding
from cqstore.migration.preflight.preflight_report import PreflightReport as PreflightReport
from cqstore.migration.preflight.preflight_report import Severity as Severity
from cqstore.migration.rollback.deleted_topic_policy import DeletedTopicPolicy as DeletedTopicPolicy
from cqstore.migration.rollback.rollback import finish as _finish
from cqstore.migration.rollback.rollback import rollback as _rollback
from cqstore.migration.run.run import RunReport as RunReport
from cqstore.migration.run.run import run_plan as run_plan
from cqstore.migration.status import status as _status
from cqstore.migration.switch.switch import SwitchReport as SwitchReport
from cqstore.migration.switch.switch import switch as _switch
from cqstore.migration.verify.verification import verify_migration as verify_migration
from cqstore.migration.verify.verify_report import VerifyReport as VerifyReport
from cqstore.migration.workspace import Workspace as Workspace

__all__: list[str]
run_preflight = _preflight
finish_migration = _finish
roll_back = _rollback
migration_status = _status
switch_store = _switch
