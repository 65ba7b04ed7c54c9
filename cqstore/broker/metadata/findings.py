"""Findings of ``cqstore meta --check``: one per kind and form, with the affected names."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

MAX_NAMES = 20
"""Maximum number of names in one finding; all names are counted."""


class MetadataSeverity(StrEnum):
    """Severity of a finding."""

    WARN = "warn"
    """A broker that starts with this metadata loses or repeats data."""
    INFO = "info"
    """For information only."""


@dataclass(slots=True)
class MetaFinding:
    """One kind of problem that a check found in one form, with the affected names."""

    form: str
    """A ``Form``, or two separated by a comma."""
    severity: MetadataSeverity
    code: str
    """Lower-case words joined by hyphens; fixed for each kind of finding."""
    sentence: str
    names: list[str] = field(default_factory=list)
    """The first affected names, at most ``MAX_NAMES``."""
    total: int = 0
    """Total number of affected names."""

    def add(self, name: str) -> None:
        """Count one more affected name."""
        self.total += 1
        if len(self.names) < MAX_NAMES:
            self.names.append(name)

    def with_names(self, names: Iterable[str]) -> Self:
        """Add ``names`` to the affected names, and return the finding."""
        for name in names:
            self.add(name)
        return self
