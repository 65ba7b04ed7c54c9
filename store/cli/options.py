"""Options that several verbs share, and the opening of a store by them."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from store.cli.output import OutputFormat, RowFormat
from store.cli.verbs import VERBOSE
from store.config import StoreConfig, odd_keys, read_broker_conf
from store.errors import RefusedStoreError, StoreError
from store.journals.store_lock import locked_by, refuse_if_open
from store.journals.store_mode import StoreMode
from store.paths import StorePaths
from store.service.finding.lay_out import lay_out
from store.service.message_store import MessageStore

Dir = Annotated[Path, typer.Argument(metavar="DIR", help="Root of the store (storePathRootDir).")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="BROKER_CONF", help="The broker's configuration file."),
]
Backend = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Backend to read of a combined store, or of a new one."),
]
CommitLogFolder = Annotated[
    Path | None,
    typer.Option("--commitlog", metavar="PATH", help="Folder of a commit log that lies elsewhere."),
]
INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
QueueId = Annotated[int, typer.Option(metavar="Q", min=0, max=INT_MAX, help="The queue.")]
CutAt = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        max=LONG_MAX,
        help="Lose everything from this phy offset on (see check).",
    ),
]
PassOver = Annotated[
    list[int] | None,
    typer.Option(
        metavar="N",
        min=0,
        max=LONG_MAX,
        help="Lose the damaged record at this phy offset; may be repeated.",
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Do it; without this only what would be done is shown.")
]
Format = Annotated[OutputFormat, typer.Option("--output", help="How to print.")]
Rows = Annotated[RowFormat, typer.Option("--output", help="How to print.")]
"""Of a verb whose rows all have the same columns."""


def read_config(path: Path | None, *, puts: bool = False) -> StoreConfig:
    """Return the configuration in ``path``; keys that are not ours are named where they matter.

    With ``--verbose`` all of them are. What promises replicas stays for a verb that ``puts``.
    """
    if path is None:
        return StoreConfig()
    config, unknown = read_broker_conf(path)
    for key, reason in odd_keys(unknown).items():
        note(f"{path}: {key} is no setting of cqstore's: {reason}")
    if unknown and VERBOSE.get():
        note(f"{path}: no setting of cqstore's: {', '.join(sorted(unknown))}")
    return config if puts else config.without_replicas()


def open_store(
    root: Path,
    config: Path | None,
    backend: str | None,
    commit_log: Path | None,
    *,
    read_only: bool = True,
    puts: bool = False,
    **settings: object,
) -> MessageStore:
    """Open the store as the options and ``settings`` say.

    What a reader has to know is said on stderr: that another process has the store open, that the
    log is damaged, that the store needs recovery.
    """
    store = MessageStore.open(
        root, read_config(config, puts=puts).model_copy(update=settings), read_only=read_only,
        backend=backend, commit_log=commit_log, housekeeping=False,
    )  # fmt: skip
    if read_only and (opener := opened_by(root)):
        note(opened_note(store, opener))
    elif store.report.damage is not None:
        note(f"the log is damaged: {store.report.damage} (cqstore check)")
    elif read_only and store.report.needed:
        note(f"{root}: this store needs recovery and is shown as it lies (cqstore recover)")
    return store


def opened_by(root: Path) -> int:
    """Return the process that has the store open, 0 where there is none or it cannot be told."""
    try:
        holder = locked_by(StorePaths(root))
    except StoreError:
        return 0
    return 0 if holder == os.getpid() else holder


def opened_note(store: MessageStore, opener: int) -> str:
    """Return what a reader of a store that process ``opener`` has open does not see."""
    in_memory = ""
    if any(part.name != "file" for part in store.queues.parts()):
        in_memory = "; what its RocksDB has in memory alone is not seen"
    return f"{store.paths.root}: process {opener} has the store open and may be writing{in_memory}"


def open_to_delete(
    root: Path, config: Path | None, backend: str | None = None, *, yes: bool
) -> MessageStore:
    """Open a store that is there and that nobody has open; read-only unless ``yes``.

    Raises:
        StoreLockedError: somebody has it open, so what would go cannot be told.
        RefusedStoreError: there is none.
    """
    refuse_if_open(StorePaths(root))
    lay_out(root, read_config(config), None, read_only=True)  # a new one is not to be made
    return open_store(root, config, backend, None, read_only=not yes)


def refuse_beside(option: str, **others: object) -> None:
    """Refuse options that say nothing beside ``option``, which was given.

    Raises:
        typer.BadParameter: one of ``others`` is not ``None``.
    """
    given = ["--" + name.replace("_", "-") for name, value in others.items() if value is not None]
    if given:
        raise typer.BadParameter(f"{', '.join(given)} says nothing beside {option}")


def state(text: str) -> StoreMode:
    """Return the state of a store that an option names.

    Raises:
        typer.BadParameter: there is none; all that there are are named.
    """
    try:
        return StoreMode(text)
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from exc


def check_is_there(root: Path) -> None:
    """Refuse a folder that is not there: a new store is not to be made.

    Raises:
        RefusedStoreError: there is none.
    """
    if not root.is_dir():
        raise RefusedStoreError("no such folder", path=root)


def note(text: str) -> None:
    """Print one line for the operator, on stderr."""
    print(f"cqstore: {text}", file=sys.stderr)
