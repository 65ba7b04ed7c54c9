"""The report as one HTML page: no script, nothing from elsewhere."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cqstore.migration.verify.verify_report import VerifyReport
from cqstore.migration.workspace import write_file
from cqstore.store.comparing.tally import DifferenceKind
from cqstore.store.page_templates import page_templates

if TYPE_CHECKING:
    from jinja2 import Template

MEANINGS: dict[DifferenceKind, tuple[str, str]] = {
    DifferenceKind.MISSING_HEAD: (
        "units",
        "only in the source; the target begins later or has no units",
    ),
    DifferenceKind.MISSING_TAIL: ("units", "only in the source; the target ends earlier"),
    DifferenceKind.HOLE: ("units", "only in the source; the target has units before and after"),
    DifferenceKind.EXTRA: ("units", "only in the target"),
    DifferenceKind.BEHIND_END: (
        "units",
        "after the end of a queue of the target; RocketMQ would read them",
    ),
    DifferenceKind.DIFFERENT: ("units", "on both sides, with different fields"),
    DifferenceKind.NEXT_OFFSET: ("queues", "continue at another queue offset"),
    DifferenceKind.ONLY_SOURCE: ("queues", "only in the source"),
    DifferenceKind.ONLY_TARGET: ("queues", "only in the target"),
    DifferenceKind.NO_RECORD: ("units", "equal on both sides, but the log has no such record"),
    DifferenceKind.OTHER_QUEUE: (
        "units",
        "equal on both sides, but the record is of another queue",
    ),
    DifferenceKind.OTHER_TAGS: (
        "units",
        "equal on both sides, but the record has another tags code",
    ),
    DifferenceKind.UNREADABLE: ("queues", "cannot be read to the end"),
}
"""For each kind: the things that are counted, and the meaning."""


def write_page(path: Path, report: VerifyReport) -> None:
    """Write the page, durably.

    Raises:
        StoreConfigError: jinja2 is not installed.
        StoreIOError: it cannot be written.
    """
    write_file(path, page(report))


def page(report: VerifyReport) -> str:
    """Return the page; all text from the store is escaped."""
    return _template().render(report=report, result=report.result, meanings=MEANINGS) + "\n"


def need_page() -> None:
    """Check that a page can be created, before a comparison begins.

    Raises:
        StoreConfigError: jinja2 is not installed.
    """
    _template()


@cache  # compiling it takes longer than most pages
def _template() -> "Template":
    return page_templates(Path(__file__).parent).get_template("report.html")
