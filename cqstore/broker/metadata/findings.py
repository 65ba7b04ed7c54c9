"""What ``cqstore meta --check`` answers: a finding a kind, with the names that it is about."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

MAX_NAMES = 20
"""Names that one finding keeps; their number is counted in full."""


class MetadataSeverity(StrEnum):
    """How much a finding matters."""

    WARN = "warn"
    """A broker that starts on this loses or repeats something."""
    INFO = "info"
    """Worth knowing."""


@dataclass(slots=True)
class MetaFinding:
    """One kind of thing that a check of metadata found in one form, with the names it is about."""

    form: str
    """A ``Form``, or two with a comma between them."""
    severity: MetadataSeverity
    code: str
    """Lower case words with hyphens; the same finding always has the same."""
    sentence: str
    names: list[str] = field(default_factory=list)
    """The first of what it is about, at most ``MAX_NAMES``."""
    total: int = 0
    """How many there are in all."""

    def add(self, name: str) -> None:
        """Count one more thing that it is about."""
        self.total += 1
        if len(self.names) < MAX_NAMES:
            self.names.append(name)

    def with_names(self, names: Iterable[str]) -> Self:
        """Add ``names`` to the affected names of the finding; return the finding."""
        for name in names:
            self.add(name)
        return self
