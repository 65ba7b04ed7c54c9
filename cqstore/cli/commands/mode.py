"""``cqstore mode``: shows the backends of a store, and changes its state."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Protocol

import typer

from cqstore.cli.options import ConfigFile, Dir, Format, about_end, note, read_config, to_state
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.cli.table import Row
from cqstore.store.comparing.compared import Compared
from cqstore.store.entry_points import entries
from cqstore.store.errors import StoreConfigError
from cqstore.store.path_kind import is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.both_backends import compare_backends
from cqstore.store.service.offline.mode import StoreMode, change_mode, current_mode, possible_steps
from cqstore.store.settings.config import StoreConfig

_GROUP = "cqstore.mode"


class StepPreparation(Protocol):
    """Refuses a state change, or returns a function to call under the store's lock before it.

    The function returns facts for the report.
    """

    def __call__(
        self,
        root: Path,
        config: StoreConfig,
        to: StoreMode,
        on_event: Callable[[str], object],
        /,
        *,
        without: Sequence[str],
        accept_older_tables: bool,
    ) -> Callable[[], Mapping[str, object]]:
        """``without``: names of the data that may be lost if it cannot be converted."""


To = Annotated[StoreMode | None, to_state("New state of the store.")]
AcceptedLoss = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="TABLE",
        help="Table to leave out if it cannot be converted (see cqstore migrate tables --help)."
        " May be repeated.",
    ),
]
AcceptOlderTables = Annotated[
    bool,
    typer.Option(
        "--accept-older-tables",
        help="Keep the older JSON tables in DIR/config when changing to files; convert nothing.",
    ),
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Compare the backends and list the differences.")
]
KeepTables = Annotated[
    bool, typer.Option("--keep-tables", help="Do not convert the broker's tables.")
]


def mode(
    root: Dir,
    to: To = None,
    *,
    verify: Verify = False,
    keep_tables: KeepTables = False,
    without: AcceptedLoss = None,
    accept_older_tables: AcceptOlderTables = False,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Show the backends of a store and its possible state changes. Apply one with --to.

    Without --to, nothing changes. For a store with two backends, the command compares them
    completely to find the possible state changes. A refused change lists all reasons.

    A backend that leaves service keeps its files, and catches up from the log when it returns. A
    change also converts the broker's tables in DIR/config for the new state, as cqstore migrate
    tables does, unless --keep-tables is given.

    With --verify, the exit code is 1 if the backends differ.

    Examples:
        cqstore mode DIR
        cqstore mode DIR --verify
    """
    settings = read_config(config, root)
    if (without or accept_older_tables) and (to is None or keep_tables):
        raise StoreConfigError(
            "--without and --accept-older-tables require --to without --keep-tables"
        )
    if verify:
        if to is not None:
            raise StoreConfigError("--verify cannot be combined with --to")
        _compare(root, settings, kind)
        return
    if to is not None:
        prepared = [
            each(
                root, settings, to, note,
                without=without or (), accept_older_tables=accept_older_tables,
            )
            for each in ([] if keep_tables else _preparing())
        ]  # fmt: skip
        _step(root, to, settings, kind, prepared)
        return
    _show(root, settings, kind)


def _show(root: Path, settings: StoreConfig, kind: OutputFormat) -> None:
    """Print the state and the possible state changes."""
    layout, settings = resolve_layout(root, settings, read_only=True)
    now = current_mode(layout, settings)
    facts: dict[str, object] = {
        "state": now,
        "set": "by cqstore mode"
        if layout.backend_state.mode
        else "by the files of the store and the settings",
        "queues in": ", ".join(layout.backends),
        "kept, the one that is read first": ", ".join(now.backends),
        "lagging": _lagging(layout.backend_state.lagging, kind),
    }
    with progress("checking the steps", about_end(root, settings)) as tick:
        for step in possible_steps(root, settings, progress=tick):
            facts[f"step to {step.to}"] = "; ".join(step.reasons) or "possible"
    output(kind).record(facts)


def _lagging(lagging: Mapping[str, int], kind: OutputFormat) -> object:
    """Return each lagging backend and the phy offset from which it lacks the log."""
    if kind is not OutputFormat.TABLE or not lagging:
        return dict(lagging)
    return ", ".join(f"{name} (from phy offset {at:,} on)" for name, at in lagging.items())


def _step(
    root: Path,
    to: StoreMode,
    settings: StoreConfig,
    kind: OutputFormat,
    prepared: Sequence[Callable[[], Mapping[str, object]]],
) -> None:
    """Change the state and print the result; ``prepared`` runs before and adds facts."""
    facts = dict[str, object]()

    def ready(_: StorePaths) -> None:
        for prepare in prepared:
            facts.update(prepare())

    with progress("stepping", about_end(root, settings)) as tick:
        done = change_mode(root, to, settings, ready=ready, progress=tick)
    units = done.recovery.dispatched_units if done.recovery else 0
    output(kind).record(
        {
            "before": done.before, "state": done.after, "lagging": _lagging(done.lagging, kind),
            "detached": done.detached, "dispatchedUnits": units, **facts,
        }
    )  # fmt: skip
    tables = StorePaths(root).config
    if done.after != done.before and is_dir(tables) and not prepared:
        note(
            f"the broker's tables in {tables} were not converted: before a broker starts in state"
            f" {done.after}, run cqstore migrate tables {root}"
        )


def _preparing() -> list[StepPreparation]:
    """Return the preparations that upper layers register, see ``StepPreparation``."""
    return [entry.load() for entry in entries(_GROUP)]


def _compare(root: Path, settings: StoreConfig, kind: OutputFormat) -> None:
    """Compare both backends and print the differences; exit code 1 if there are any."""
    with (
        progress("comparing") as tick,
        MessageStore.open(root, settings, read_only=True, housekeeping=False) as store,
    ):
        tick.measure(store.max_phy_offset())
        compared = compare_backends(store, progress=tick)
    output(kind).rows(_differences(compared))
    note(
        f"{compared.units} units of {compared.queues} queues compared, {compared.reference}"
        f" with {compared.copy}: {compared.differing_queues} queues differ"
    )
    if not compared.is_clean:
        raise typer.Exit(1)


def _differences(compared: Compared) -> Iterator[Row]:
    """Yield a row for each difference."""
    for queue, found in compared.differences():
        yield {
            "kind": found.kind,
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "from": found.first,
            "to": found.last,
            "lacking": compared.incomplete_backend(found),
            "field": found.field or "",
            "values": compared.values(found) or None,
        }
