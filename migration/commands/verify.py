"""``cqstore migrate verify``."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cqstore.cli.options import ConfigFile, Format, meant, note, read_config
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import PARTS, progress
from cqstore.cli.table import Row
from cqstore.migration.commands.options import Master, Space
from cqstore.migration.commands.verify_options import Deep, OwnClient, Schema, WithClients
from cqstore.migration.plan.planner import task_settings
from cqstore.migration.tasks import MASTER
from cqstore.migration.verify.clients_report import ClientsReport
from cqstore.migration.verify.page import MEANINGS
from cqstore.migration.verify.verification import (
    CompareClients,
    Progress,
    verify_migration,
    verify_queues,
)
from cqstore.migration.verify.verify_report import VerifyReport, report_schema
from cqstore.migration.workspace import Workspace
from cqstore.serve.commands.client_options import ClientTimeout
from cqstore.store.errors import RefusedStoreError
from cqstore.store.journals.store_lock import locked_by
from cqstore.store.path_kind import exists
from cqstore.store.queue.queue_location import QueuePlace
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

EXIT_DIFFERENT = 1
_BACKENDS = 2


def verify_command(
    root: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Root of the store (storePathRootDir).", callback=meant),
    ] = None,
    config: ConfigFile = None,
    workspace: Space = None,
    master: Master = MASTER,
    kind: Format = OutputFormat.TABLE,
    *,
    deep: Deep = False,
    with_clients: WithClients = False,
    client_command: OwnClient = None,
    client_timeout: ClientTimeout = 600,
    schema: Schema = False,
) -> None:
    """Compare the new queues of a migration with the old queues and the commit log.

    Compares every field of every unit and writes report.json and report.html to the workspace.
    Without a migration, it compares both backends of a closed store. Exit code 1 on any difference.

    Examples:
        cqstore migrate verify DIR --master none
        cqstore migrate verify DIR --deep --output json
        cqstore migrate verify DIR --with-clients --client-command 'my-consumer {address}'
    """
    if schema:
        typer.echo(report_schema(), nl=False)
        return
    if root is None:
        raise typer.BadParameter("required unless --schema is given", param_hint="DIR")
    if client_command is not None and not with_clients:
        raise typer.BadParameter("--client-command needs --with-clients")
    space = Workspace.of(root.absolute(), workspace)
    with progress("comparing", unit=PARTS) as tick:
        command = None if client_command is None else (client_command, client_timeout)
        clients = _clients(root, config, command, tick.of) if with_clients else None
        same: Any = {"workspace": space, "master": master, "deep": deep, "progress": tick.of}
        if exists(space.plan):
            report = verify_migration(root, **same, clients=clients)
        else:
            report = verify_queues(*both_backends(root, config), **same, clients=clients)
    _print(report, kind)
    note(f"{report.verdict}; report: {space.report_page}")
    if not report.equal:
        raise typer.Exit(EXIT_DIFFERENT)


def _clients(
    root: Path, config: Path | None, command: tuple[str, float] | None, progress: Progress
) -> CompareClients:
    """Return the function that lets clients read both."""
    # A server and an event loop: slow to import, and rarely needed.
    from cqstore.migration.verify.with_clients import Clients, compare_by_clients  # noqa: PLC0415
    from cqstore.serve.client_command import ClientCommand  # noqa: PLC0415

    own = None if command is None else ClientCommand(*command)
    return partial(compare_by_clients, Clients(root, config, own, progress))


def both_backends(root: Path, config: Path | None) -> tuple[QueuePlace, QueuePlace]:
    """Return the places of the two backends of a closed store, files first.

    Raises:
        RefusedStoreError: it does not have two backends, needs recovery, or is open.
    """
    with MessageStore.open(
        root, read_config(config, root), read_only=True, housekeeping=False
    ) as store:
        held = components_of(store).layout.backends
        if len(held) != _BACKENDS:
            found = f"only {held[0]} queues" if held else "no queues"
            raise RefusedStoreError(
                f"nothing to compare: no migration is in progress, and the store has {found}",
                path=root,
            )
        if locked_by(components_of(store).paths):
            raise RefusedStoreError(
                "the store is in use, so its newest units may not be on disk yet: stop the process"
                " that has it open, or verify a copy",
                path=root,
            )
        folders = tuple(components_of(store).layout.log_folders)
        settings = task_settings(store)
        first, second = (QueuePlace(name, root.absolute(), folders, settings) for name in held)
    return first, second


def _print(report: VerifyReport, kind: OutputFormat) -> None:
    """Print the report: counts, findings and facts."""
    if kind is not OutputFormat.TABLE:
        output(kind).record(report.model_dump(mode="json"))
        return
    result = report.result
    rows = [
        {"kind": name.value, "count": result.counts[name], "of": of, "meaning": meaning}
        for name, (of, meaning) in MEANINGS.items()
        if result.counts.get(name)
    ]
    output(kind).rows(rows)
    output(kind).rows(_findings(report))
    if report.clients is not None:
        output(kind).rows(each.model_dump(mode="json") for each in report.clients.listed)
    output(kind).record(_facts(report))


def _findings(report: VerifyReport) -> Iterator[Row]:
    for queue in report.result.listed:
        for finding in queue.findings:
            values = finding.model_dump(mode="json")
            yield {"topic": queue.topic, "queueId": queue.queue_id, **values}


def _facts(report: VerifyReport) -> Row:
    """Return the figures of a report."""
    result = report.result
    both = {"source": report.source_side.backend, "target": report.target_side.backend}
    sums = {"source": result.source, "target": result.target}
    facts: dict[str, object] = {"verdict": report.verdict, "queues": result.queues}
    facts["ran in"] = "; ".join(f"{step}: {where}" for step, where in report.ran_in.items())
    for side, name in both.items():
        facts[side] = f"{name}, {sums[side].units:,} units, checksum {sums[side].checksum}"
    if report.plan is not None and report.plan.topics is not None:
        facts["topics"] = report.plan.topics
        facts["left topics"] = ", ".join(report.plan.left)
    if report.clients is not None:
        facts |= _client_facts(report.clients)
    noted = {name: value for name, value in result.notes.model_dump().items() if value}
    return facts | {"differing queues": result.differing, **noted}


def _client_facts(found: ClientsReport) -> Row:
    """Return the figures of clients."""
    facts: dict[str, object] = {
        found.client: f"{found.messages:,} messages of {found.queues:,} queues,"
        f" {found.requests:,} requests, {found.differing:,} queues differ",
    }
    if found.refused:
        facts["refused by both"] = f"{found.refused:,} requests"
    if found.later:
        facts["later messages"] = f"{found.later:,}, not compared"
    if (run := found.command) is not None:
        facts[run.command] = (
            f"{'equal' if run.equal else 'different'}: exit codes {run.source_exit} and"
            f" {run.target_exit}, {run.source_lines:,} and {run.target_lines:,} lines"
        )
    return facts
