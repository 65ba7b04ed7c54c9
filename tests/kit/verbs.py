"""Verbs of the command line, run in this process."""

import json
import threading
from typing import Any

from typer.testing import CliRunner, Result

from cqstore.cli import progress
from cqstore.cli.app import app


def never_reported() -> None:
    """Let no line of progress come into standard error, however slow the machine is."""
    progress.LINE_AFTER = threading.TIMEOUT_MAX


never_reported()
Rows = list[dict[str, Any]]


def call(*words: object, feed: str = "") -> Result:
    """Run a verb with ``feed`` on standard input."""
    return CliRunner().invoke(app, [*map(str, words)], input=feed)


def rows(*words: object) -> Rows:
    """Return the rows that a verb prints; it must end well."""
    done = call(*words, "--output", "jsonl")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]
