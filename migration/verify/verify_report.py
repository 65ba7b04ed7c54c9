"""The report of a comparison, for programs and as the source of the HTML page.

Its JSON schema is next to this module: ``report.schema.json``.
"""

import json
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, NonNegativeInt

from cqstore.migration.markers import read_versioned
from cqstore.migration.verify.clients_report import ClientsReport
from cqstore.migration.workspace import write_file
from cqstore.store.comparing.tally import ComparisonTally, TallyModel
from cqstore.store.errors import RefusedStoreError
from cqstore.store.path_kind import exists

FORMAT = 1


class Side(TallyModel):
    """One of the two backends that were compared."""

    backend: str
    folder: str = Field(description="Root folder of the queues.")


class PlanFacts(TallyModel):
    """The plan whose new queues were compared; fields of older releases are ignored."""

    model_config = ConfigDict(extra="ignore")

    digest: str
    created: str
    complete_to: int
    made: str = Field(
        description="Digest of names, sizes and bytes of the files that were compared."
    )
    known_queues: str = Field(
        "",
        description="Digest of the file that shows which files were modified later; empty if the"
        " store was in use.",
    )
    topics: str | None = Field(
        None,
        description="The topics that were moved and compared, written like doubleWriteTopics; null:"
        " all topics.",
    )
    left: list[str] = Field(
        default_factory=list,
        description="BatchCQ topics that stay in files and were not compared. A broker with RocksDB"
        " does not serve them.",
    )


class VerifyReport(TallyModel):
    """Report of a comparison."""

    format: Literal[1] = 1
    verdict: Literal["equal", "different"]
    store: str
    source_side: Side
    target_side: Side
    plan: PlanFacts | None = Field(description="Null if both backends belong to the store itself.")
    deep: bool = Field(description="Every record was decoded and compared with its units.")
    started: str
    seconds: float
    tasks: NonNegativeInt
    ran_in: dict[str, str] = Field(
        default_factory=dict,
        description="Step of the migration → where its tasks ran: this process, processes, Spark.",
    )
    min_phy_offset: int = Field(
        description="Start of the log; units of older records have expired."
    )
    max_phy_offset: int
    result: ComparisonTally
    clients: ClientsReport | None = Field(
        None, description="What clients received from both; null without --with-clients."
    )

    @property
    def equal(self) -> bool:
        """Return whether no difference was found."""
        return self.verdict == "equal"


def report_schema() -> str:
    """Return the JSON schema of the report, as ``report.schema.json`` has it."""
    return json.dumps(VerifyReport.model_json_schema(), indent=1) + "\n"


def write_report(path: Path, report: VerifyReport) -> None:
    """Write the report, durably.

    Raises:
        StoreIOError: it cannot be written.
    """
    write_file(path, report.model_dump_json(indent=1) + "\n")


def read_report(path: Path) -> VerifyReport:
    """Read a report.

    Raises:
        RefusedStoreError: there is no report.
        UnsupportedFormatError: it has a newer format.
        CorruptionError: it is not a valid report.
    """
    if not exists(path):
        raise RefusedStoreError("no report found: run cqstore migrate verify first", path=path)
    return read_versioned(path, VerifyReport, FORMAT, "report")
