"""Verbs of the command line, run in this process."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from store.cli.app import app

Rows = list[dict[str, Any]]


def call(*words: object, feed: str = "") -> Result:
    """Run a verb with ``feed`` on standard input."""
    return CliRunner().invoke(app, [*map(str, words)], input=feed)


def rows(*words: object) -> Rows:
    """Return the rows that a verb prints; it must end well."""
    done = call(*words, "--output", "jsonl")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]
