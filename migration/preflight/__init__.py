"""Preflight: check whether the queues of a store can be moved, and list the problems.

``preflight`` examines a folder without changing a byte in it; ``cqstore migrate preflight`` prints
its report.
"""

from cqstore.migration.preflight.examine import preflight
from cqstore.migration.preflight.preflight_report import (
    Affected,
    PreflightFinding,
    PreflightReport,
    Severity,
)

__all__ = ["Affected", "PreflightFinding", "PreflightReport", "Severity", "preflight"]
