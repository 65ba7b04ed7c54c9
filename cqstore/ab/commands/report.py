"""``cqstore ab report``: the report of a result, made again."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.ab.extras import need_extras
from cqstore.ab.judging.banner import matching
from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import Judgement
from cqstore.ab.report.printing import print_report
from cqstore.ab.report.report_page import write_page
from cqstore.ab.results.result import Result
from cqstore.ab.results.result_file import read_result, result_schema, write_result
from cqstore.cli.options import Format, note
from cqstore.cli.output import OutputFormat
from cqstore.cli.path_marks import OutputPath
from cqstore.store.errors import RefusedStoreError
from cqstore.store.path_kind import is_dir

EXIT_DIFFERENT = 1
Page = Annotated[
    Path | None,
    typer.Option("--html", metavar="PATH", help="Also write the HTML report to PATH."),
    OutputPath(),
]


Matters = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME,…",
        help="Workloads that decide the recommendation (wildcards allowed). Default: all.",
    ),
]


def report_command(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Result file, of ab run or ab live. Needed unless --schema is given.",
        ),
    ] = None,
    matters: Matters = None,
    html: Page = None,
    kind: Format = OutputFormat.TABLE,
    *,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of a result and exit.")
    ] = False,
) -> None:
    """Print the report of a result.

    All figures of the report are computed again from the measurements in FILE. Exit code 1 if
    answers differ, or if no answer was compared.

    Examples:
        cqstore ab report result.json --html report.html
        cqstore ab report result.json --matters tail-pull,restart
    """
    if schema:
        typer.echo(result_schema(), nl=False)
        return
    if file is None:
        raise typer.BadParameter("give a result file, or --schema", param_hint="FILE")
    if html is not None:
        check_place(html, "HTML report", "--html", file)
    found = read_result(file)
    need_extras()
    if matters:
        names = matching(matters, [each.name for each in found.workloads])
        found = found.model_copy(update={"matters": names})
    end_with(report(found, html, kind))


def check_place(path: Path, what: str, option: str, other: Path | None = None) -> None:
    """Refuse a path that cannot be written, before there is something to write.

    Raises:
        RefusedStoreError: it is a folder, its folder does not exist, or it is ``other``, the file
            of the result.
    """
    if is_dir(path) or not is_dir(path.absolute().parent):
        why = "it is a folder" if is_dir(path) else "its folder does not exist"
        raise RefusedStoreError(f"cannot write the {what}: {why} ({option})", path=path)
    if other is not None and path.resolve() == other.resolve():
        raise RefusedStoreError(
            f"cannot write the {what}: it would replace the result ({option})", path=path
        )


def report(result: Result, html: Path | None, kind: OutputFormat) -> Judgement:
    """Print the report of a result, and write it to ``html`` if given; return the judgement.

    Raises:
        StoreConfigError: a histogram cannot be read.
        StoreIOError: the HTML report cannot be written.
    """
    judgement = judge(result)
    print_report(judgement, kind)
    if html is not None:
        write_page(html, result, judgement)
        note(f"HTML report written to {html}")
    return judgement


def save_and_report(
    found: Result, result: Path, html: Path | None, kind: OutputFormat
) -> Judgement:
    """Write a new result to the file ``result``, then ``report`` it; return the judgement.

    Raises:
        StoreConfigError: a histogram cannot be read.
        StoreIOError: the result or the HTML report cannot be written.
    """
    write_result(result, found)
    judgement = report(found, html, kind)
    note(f"result written to {result}")
    return judgement


def end_with(judgement: Judgement) -> None:
    """Exit with code 1 if answers differ, or if no answer was compared."""
    if judgement.answers.status in {"different", "none"}:
        raise typer.Exit(EXIT_DIFFERENT)
