"""Settings under which no thread of a store flushes or dispatches while a test looks at it."""

from typing import Any

from cqstore.store.settings.config import StoreConfig

HOUR_MS = 3_600_000
"""Longer than any test: what happens in that time, the test has called for."""


def quiet_config(**settings: Any) -> StoreConfig:
    """Return settings whose four flush intervals are an hour, and ``settings``."""
    quiet: dict[str, Any] = dict.fromkeys(
        (
            "flush_interval_commit_log", "flush_commit_log_thorough_interval",
            "flush_interval_consume_queue", "flush_consume_queue_thorough_interval",
        ),
        HOUR_MS,
    )  # fmt: skip
    return StoreConfig(**(quiet | settings))
