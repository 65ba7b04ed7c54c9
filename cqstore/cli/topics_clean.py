"""Options of ``cqstore topics --clean``, which an upper layer carries out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

import typer

from cqstore.cli.duration import seconds_of
from cqstore.cli.options import bounded
from cqstore.cli.output import OutputFormat
from cqstore.store.entry_points import entries
from cqstore.store.errors import RefusedStoreError, StoreConfigError

_GROUP = "cqstore.cleaning"
RATE = 100.0

Clean = Annotated[
    bool,
    typer.Option("--clean", help="Delete the topics that --unused, --idle or --lite select."),
]
Unused = Annotated[
    bool,
    typer.Option(
        "--unused", help="With --clean: select topics that are not in the broker's metadata."
    ),
]
Lite = Annotated[
    bool,
    typer.Option(
        "--lite",
        help="With --clean: select lite topics that are past lite.topic.expiration of their"
        " parent.",
    ),
]
Lagging = Annotated[
    bool,
    typer.Option(
        "--lagging",
        help="With --clean: also delete topics with messages that a group has not consumed, and"
        " dead letters.",
    ),
]
Rate = Annotated[
    float,
    typer.Option(
        metavar="N", min=0.01, callback=bounded,
        help="With --clean: maximum number of topics deleted per second.",
    ),
]  # fmt: skip
Every = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="With --clean: repeat after this time, such as 10m, until Ctrl-C.",
    ),
]
CleanForm = Annotated[
    str | None,
    typer.Option(
        "--form",
        metavar="json|v1|single|v2",
        help="With --clean: form of the metadata that the broker reads, if DIR has several.",
    ),
]


@dataclass(frozen=True, slots=True)
class CleanRequest:
    """What a command cleans, and how."""

    unused: bool
    idle_days: float | None
    lite: bool
    lagging: bool
    prefix: str
    rate: float
    every: float | None
    """Seconds between two rounds; ``None``: one round."""
    form: str | None
    yes: bool

    @property
    def has_options_of_its_own(self) -> bool:
        """Return whether an option is given that only ``--clean`` has."""
        rules = self.unused or self.lite or self.lagging
        return bool(rules or self.every or self.form) or self.rate != RATE


class TopicsCleaning(Protocol):
    """Cleans the topics of a store; an entry point of the group ``cqstore.cleaning``."""

    def __call__(
        self, root: Path, config: Path | None, backend: str | None, request: CleanRequest,
        kind: OutputFormat, /,
    ) -> None:  # fmt: skip
        """Print each topic that a rule selects, and delete it with ``yes``."""


def clean(
    root: Path, config: Path | None, backend: str | None, request: CleanRequest,
    kind: OutputFormat, *, clean: bool, others: bool,
) -> None:  # fmt: skip
    """Clean the topics of the store in ``root``.

    ``clean``: ``--clean`` is given; ``others``: options are given that do not belong to it.

    Raises:
        StoreConfigError: the options cannot be combined, or no rule is given.
        RefusedStoreError: the package that cleans is not installed.
    """
    if not clean:
        raise StoreConfigError(
            "--unused, --lite, --lagging, --rate, --every and --form require --clean"
        )
    if others:
        raise StoreConfigError(
            "--clean cannot be combined with topic names, --delete, --delete-from, --limit,"
            " --after, --commitlog or --times"
        )
    if not (request.unused or request.lite or request.idle_days is not None):
        raise StoreConfigError("--clean requires --unused, --idle or --lite")
    for entry in entries(_GROUP):
        cleaning: TopicsCleaning = entry.load()
        cleaning(root, config, backend, request, kind)
        return
    raise RefusedStoreError("the package that cleans topics is not installed (cqstore.cleaning)")


def interval(every: str | None) -> float | None:
    """Return the seconds of ``--every``.

    Raises:
        typer.BadParameter: it is not a duration.
    """
    return None if every is None else seconds_of(every, "--every")
