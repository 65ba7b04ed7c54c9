"""What preflight answers: findings, and the report that holds them. JSON-able.

A finding reports one thing once, however many queues it is about: their names are capped, their
number is not. Nothing here grows with the number of queues.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, computed_field
from pydantic.alias_generators import to_camel

NAMES_MAX = 20
"""Names that one finding keeps."""


def _printable(value: Any) -> Any:
    """Escape what is no UTF-8, as names of folders may be: JSON and terminals take none of it."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_printable)]
Figure = int | float | Text | bool | None


class Severity(StrEnum):
    """How much a finding matters."""

    REFUSE = "refuse"
    """The move must not begin."""
    WARN = "warn"
    """It may begin, and this will be a problem."""
    INFO = "info"
    """Worth knowing."""


class _ReportModel(BaseModel):
    """A part of the report: unchangeable; its fields have RocketMQ's kind of names in JSON."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class Affected(_ReportModel):
    """One thing that a finding is about: a topic, ``TOPIC/QUEUEID``, a key, a folder."""

    name: Text
    figures: dict[str, Figure] = Field(default_factory=dict)


class PreflightFinding(_ReportModel):
    """One thing that a preflight found: how much it matters, a sentence, names, numbers."""

    code: str
    """Lower case words with hyphens; the same finding always has the same."""
    severity: Severity
    sentence: Text
    """One sentence for people, without the figures that follow."""
    figures: dict[str, Figure] = Field(default_factory=dict)
    """Numbers, each with its unit in the name where it has one."""
    affected: list[Affected] = Field(default_factory=list)
    """The first of what it is about, at most ``NAMES_MAX``."""
    affected_total: int = 0
    """How many there are in all."""


class PreflightReport(_ReportModel):
    """All that a preflight found of one folder."""

    version: int = 1
    """Of this shape."""
    root: Text
    to: str
    """The backend that the queues are to go to, ``rocksdb`` or ``file``."""
    rocketmq_version: str
    """Which release's rules the settings were read by."""
    layout: str
    """A ``FolderKind``: what lies in the folder."""
    surveyed: str | None = None
    """The backend whose queues were looked at, ``None`` if none were."""
    topics: int = 0
    queues: int = 0
    units: int = 0
    """Units from each queue's minimum to its maximum."""
    findings: list[PreflightFinding] = Field(default_factory=list)
    """Those that refuse first, else in the order of the checks."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def may_go_on(self) -> bool:
        """Return whether nothing refuses."""
        return not self.refusals

    @property
    def refusals(self) -> list[PreflightFinding]:
        """Return the findings that refuse."""
        return [finding for finding in self.findings if finding.severity is Severity.REFUSE]

    def find(self, code: str) -> PreflightFinding | None:
        """Return the first finding with ``code``, ``None`` without."""
        return next((finding for finding in self.findings if finding.code == code), None)


_ORDER = list(Severity)


def by_severity(findings: Iterable[PreflightFinding]) -> list[PreflightFinding]:
    """Return findings with what refuses first; of one severity they keep their order."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))


class NameCount:
    """Names of one kind, counted; the first ``NAMES_MAX`` are kept."""

    def __init__(self) -> None:
        self.affected: list[Affected] = []
        self.total = 0

    def add(self, name: str, **figures: Figure) -> None:
        """Count one, with what there is to say of it alone."""
        self.total += 1
        if len(self.affected) < NAMES_MAX:
            self.affected.append(Affected(name=name, figures=figures))

    def finding(
        self, code: str, severity: Severity, sentence: str, **figures: Figure
    ) -> list[PreflightFinding]:
        """Return the finding about all of them, nothing if there was none."""
        if not self.total:
            return []
        found = PreflightFinding(
            code=code, severity=severity, sentence=sentence, figures=figures,
            affected=self.affected, affected_total=self.total,
        )  # fmt: skip
        return [found]
