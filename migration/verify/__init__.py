"""Comparing the queues of two backends, unit by unit, with each other and with the log."""

from migration.verify.report import VerifyReport, read_report
from migration.verify.verification import verified, verify_migration, verify_queues
from store.queue.places import QueuePlace

__all__ = [
    "QueuePlace",
    "VerifyReport",
    "read_report",
    "verified",
    "verify_migration",
    "verify_queues",
]
