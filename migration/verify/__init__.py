"""Compare the queues of two backends, unit by unit, with each other and with the log."""

from cqstore.migration.verify.verification import verified, verify_migration, verify_queues
from cqstore.migration.verify.verify_report import VerifyReport, read_report
from cqstore.store.queue.queue_location import QueuePlace

__all__ = [
    "QueuePlace",
    "VerifyReport",
    "read_report",
    "verified",
    "verify_migration",
    "verify_queues",
]
