"""Preflight: may the queues of a store be moved to the other backend, and with what problems.

``preflight`` answers for a folder, without changing a byte in it; ``cqstore migrate preflight``
prints the answer.
"""

from cqstore.migration.preflight.examine import preflight
from cqstore.migration.preflight.preflight_report import (
    Affected,
    PreflightFinding,
    PreflightReport,
    Severity,
)

__all__ = ["Affected", "PreflightFinding", "PreflightReport", "Severity", "preflight"]
