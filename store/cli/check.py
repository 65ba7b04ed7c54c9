"""``cqstore check``: every record, every unit, every file."""

from collections.abc import Iterator

import typer

from store.cli.options import Backend, CommitLogFolder, ConfigFile, Dir, Format, note, open_store
from store.cli.output import OutputFormat, Row, output, progress
from store.service.check import Finding


def check(
    root: Dir,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Check the whole store and list what is wrong, with file and offset. Changes nothing.

    Exit code 1 if anything is damaged or the store needs recovery.
    """
    damaged = 0

    def rows(findings: Iterator[Finding]) -> Iterator[Row]:
        nonlocal damaged
        for finding in findings:
            damaged += finding.damage
            yield _row(finding)

    with progress("checking") as tick, open_store(root, config, backend, commit_log) as store:
        checking = store.checker(tick)
        output(kind).rows(rows(checking.run()))
        note(f"{checking.records} records, {checking.units} units checked; {damaged} damaged")
        if damaged or not store.last_exit_ok:
            raise typer.Exit(1)


def _row(finding: Finding) -> Row:
    queue = finding.queue
    return {
        "severity": "damage" if finding.damage else "note",
        "problem": finding.problem,
        "path": finding.path,
        "position": finding.position,
        "phyOffset": finding.phy_offset,
        "topic": queue.topic if queue else None,
        "queueId": queue.queue_id if queue else None,
        "queueOffset": finding.queue_offset,
    }
