"""``cqstore migrate preflight``: the report as a table or JSON, and an exit code."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import ConfigFile, Dir, Format, note, read_config
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.cli.table import Row
from cqstore.migration.preflight.examine import RELEASE, preflight
from cqstore.migration.preflight.folder_verdict import IN_USE
from cqstore.migration.preflight.preflight_report import PreflightFinding, PreflightReport
from cqstore.store.queue.bulk import bulk_names
from cqstore.store.sentences import some_of

_NAMES_SHOWN = 3
_NAME_WIDTH = 40
"""Maximum length of a name in the table; JSON has the whole name."""


def preflight_command(
    root: Dir,
    to: Annotated[
        str,
        typer.Option(metavar="BACKEND", help=f"Target backend: {' or '.join(bulk_names())}."),
    ] = "rocksdb",
    broker_conf: Annotated[
        Path | None,
        typer.Option(
            "--broker-conf", metavar="FILE", help="Configuration file of the broker to check."
        ),
    ] = None,
    rocketmq: Annotated[
        str, typer.Option(metavar="VERSION", help="RocketMQ release that will open the store.")
    ] = RELEASE,
    *,
    running: Annotated[
        bool, typer.Option("--running", help="Also check a store that a process has open.")
    ] = False,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Check whether the queues can be moved, and list the problems. Changes nothing.

    Exit code 1 if a problem forbids the move. Takes no lock. A store that a broker has open is
    refused unless you give --running; the findings then describe that moment. The store's
    settings come from --config, or from --broker-conf if --config is not given.

    Examples:
        cqstore migrate preflight DIR
        cqstore migrate preflight DIR --running --broker-conf broker.conf
    """
    settings = read_config(config, root) if config is not None else None
    with progress("examining", unit="queues") as tick:
        report = preflight(
            root, settings, to=to, broker_conf=broker_conf, rocketmq_version=rocketmq,
            running=running, progress=tick.of,
        )  # fmt: skip
    printer = output(kind)
    if kind is OutputFormat.TABLE:
        printer.rows(_rows(report))
        note(_verdict(report))
    else:
        printer.record(report.model_dump(mode="json", by_alias=True))
    if not report.may_go_on:
        raise typer.Exit(1)


def _rows(report: PreflightReport) -> Iterator[Row]:
    """Yield a row for the layout and for each finding."""
    what = f"{report.layout}, to {report.to}"
    layout = {"severity": "", "code": "layout", "finding": what, "figures": "", "affected": ""}
    yield {**layout, "where": ""}
    for finding in report.findings:
        yield {
            "severity": finding.severity.value,
            "code": finding.code,
            "finding": finding.sentence,
            "figures": _figures(finding.figures),
            "affected": _names(finding),
            "where": finding.where,
        }


def _figures(figures: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in figures.items())


def _names(finding: PreflightFinding) -> str:
    shown = []
    for each in finding.affected[:_NAMES_SHOWN]:
        name = each.name if len(each.name) <= _NAME_WIDTH else f"{each.name[:_NAME_WIDTH]}..."
        shown.append(f"{name} ({_figures(each.figures)})" if each.figures else name)
    return some_of(shown, finding.affected_total, "; ")


def _verdict(report: PreflightReport) -> str:
    """Return in a sentence whether the queues may be moved."""
    if report.may_go_on and (in_use := report.find(IN_USE)) is not None:
        return (
            f"{report.root}: the queues may be moved to {report.to} so far; process"
            f" {in_use.figures['pid']} has the store open: run preflight again after it has"
            " stopped, before the switch"
        )
    if report.may_go_on:
        return f"{report.root}: the queues may be moved to {report.to}"
    count = len(report.refusals)
    reasons = "1 finding forbids" if count == 1 else f"{count} findings forbid"
    return f"{report.root}: the queues must not be moved to {report.to}: {reasons} it"
