"""Findings of preflight, and the report that contains them, for JSON.

A finding reports one problem once, however many queues it affects: the list of names is limited,
their number is exact. Memory does not grow with the number of queues.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, computed_field
from pydantic.alias_generators import to_camel

from cqstore.store.sentences import some_of

NAMES_MAX = 20
"""Names that one finding keeps."""
_NAMES_IN_ERROR = 5


def _printable(value: Any) -> Any:
    """Escape text that is not UTF-8, such as some folder names, for JSON and terminals."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_printable)]
Figure = int | float | Text | bool | None


class Severity(StrEnum):
    """Severity of a finding."""

    REFUSE = "refuse"
    """The move must not begin."""
    WARN = "warn"
    """The move may begin, but this will cause a problem."""
    INFO = "info"
    """Information; no problem."""


class _ReportModel(BaseModel):
    """Immutable part of the report; its fields have camelCase names in JSON, as in RocketMQ."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class Affected(_ReportModel):
    """One thing that a finding affects: a topic, ``TOPIC/QUEUEID``, a key or a folder."""

    name: Text
    figures: dict[str, Figure] = Field(default_factory=dict)


class PreflightFinding(_ReportModel):
    """One finding of a preflight: code, severity, sentence, figures and affected names."""

    code: str
    """Lower-case words with hyphens. The same kind of finding always has the same code."""
    severity: Severity
    sentence: Text
    """Text for people, without the figures."""
    figures: dict[str, Figure] = Field(default_factory=dict)
    """Figures by name; a unit is part of the name."""
    affected: list[Affected] = Field(default_factory=list)
    """First affected things, at most ``NAMES_MAX``."""
    affected_total: int = 0
    """Number of all affected things."""
    where: Text = ""
    """File, folder or setting that the finding is about."""

    def at(self, where: Path | str) -> "PreflightFinding":
        """Return the finding; if it does not say where it comes from, it is about ``where``."""
        return self if self.where else self.model_copy(update={"where": _printable(str(where))})

    def error(self) -> str:
        """Return the finding as one part of an error: a clause, with the first affected names."""
        clause = self.sentence.removesuffix(".")
        if clause.partition(" ")[0][1:].islower() or clause.startswith("A "):  # not a proper name
            clause = clause[0].lower() + clause[1:]
        names = [each.name for each in self.affected[:_NAMES_IN_ERROR]]
        return f"{clause} ({some_of(names, self.affected_total)})" if names else clause


class PreflightReport(_ReportModel):
    """Report of a preflight of one folder."""

    version: int = 1
    """Version of this report format."""
    root: Text
    to: str
    """Target backend, ``rocksdb`` or ``file``."""
    rocketmq_version: str
    """RocketMQ release whose rules were applied to the settings."""
    layout: str
    """Layout of the folder, a ``FolderKind``."""
    surveyed: str | None = None
    """Backend whose queues were examined; ``None`` if none were."""
    topics: int = 0
    queues: int = 0
    units: int = 0
    """Units from each queue's minimum to its maximum."""
    findings: list[PreflightFinding] = Field(default_factory=list)
    """Findings that refuse first, then in the order of the checks."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def may_go_on(self) -> bool:
        """Return whether no finding has severity ``refuse``."""
        return not self.refusals

    @property
    def refusals(self) -> list[PreflightFinding]:
        """Return the findings with severity ``refuse``."""
        return [finding for finding in self.findings if finding.severity is Severity.REFUSE]

    def find(self, code: str) -> PreflightFinding | None:
        """Return the first finding with ``code``, or ``None``."""
        return next((finding for finding in self.findings if finding.code == code), None)


_ORDER = list(Severity)


def by_severity(findings: Iterable[PreflightFinding]) -> list[PreflightFinding]:
    """Return findings sorted by severity, ``refuse`` first; the sort is stable."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))


def finding(
    code: str, severity: Severity, sentence: str, names: Sequence[str] = (), /, **figures: Figure
) -> PreflightFinding:
    """Return a finding that affects ``names``, with its figures."""
    return PreflightFinding(
        code=code, severity=severity, sentence=sentence, figures=figures,
        affected=[Affected(name=name) for name in names[:NAMES_MAX]], affected_total=len(names),
    )  # fmt: skip


class NameCount:
    """Counter of names of one kind that keeps the first ``NAMES_MAX``."""

    def __init__(self) -> None:
        self.affected: list[Affected] = []
        self.total = 0

    def add(self, name: str, **figures: Figure) -> None:
        """Count one name, with its own figures."""
        self.total += 1
        if len(self.affected) < NAMES_MAX:
            self.affected.append(Affected(name=name, figures=figures))

    def to_fields(self) -> dict[str, Any]:
        """Return the names in a form that fits JSON, for another process."""
        kept = [[each.name, each.figures] for each in self.affected]
        return {"affected": kept, "total": self.total}

    def add_fields(self, given: dict[str, Any]) -> None:
        """Add the result of ``to_fields`` of names that follow."""
        more = [Affected(name=name, figures=figures) for name, figures in given["affected"]]
        self.affected = (self.affected + more)[:NAMES_MAX]
        self.total += given["total"]

    def finding(
        self, code: str, severity: Severity, sentence: str, **figures: Figure
    ) -> list[PreflightFinding]:
        """Return a list of the finding about all names; empty if there are none."""
        found = finding(code, severity, sentence, **figures)
        about = {"affected": self.affected, "affected_total": self.total}
        return [found.model_copy(update=about)] if self.total else []
