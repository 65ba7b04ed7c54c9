"""Options that several verbs share, and the opening of a store by them."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from cqstore.cli.lazy_verbs import VERBOSE
from cqstore.cli.output import OutputFormat, RowFormat
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreConfigError, StoreError
from cqstore.store.java_numbers import INT_MAX, LONG_MAX
from cqstore.store.journals.store_lock import locked_by, refuse_if_open
from cqstore.store.journals.store_mode import StoreMode, store_modes
from cqstore.store.log.approximate_end import about_log_end
from cqstore.store.path_kind import exists, is_dir, is_file
from cqstore.store.paths import StorePaths
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.layout.root_folder import refuse_file, refuse_part
from cqstore.store.service.layout.store_layout import detect, with_log_folder
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.settings.broker_conf import BrokerConf, ConfNote
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.installed_backends import backend_names

_MAX_NOTES = 3
"""Notes about files that one verb prints; ``check`` lists all."""


def meant(place: Path | None) -> Path | None:
    """Return what was given as the folder of a store.

    Raises:
        RefusedStoreError: it is a part of one, which the error names, or a file.
    """
    if place is None or not exists(place):
        return place
    refuse_part(place)
    refuse_file(place)
    return place


Dir = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="Root folder of the store (storePathRootDir).", callback=meant
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="BROKER_CONF", help="Configuration file of the broker (broker.conf)."
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Backend to use: {' or '.join(backend_names())}. Default: the store's current one"
        " (new store: by storeType).",
    ),
]
CommitLogFolder = Annotated[
    Path | None,
    typer.Option(
        "--commitlog", metavar="PATH", help="Folder of the commit log, if it is outside DIR."
    ),
]


_Number = TypeVar("_Number", int, float)


def java_int(value: int | None) -> int | None:
    """Return the value of an option, or refuse it if it does not fit into Java's ``int``.

    With ``max`` each help would show the number, and little else.
    """
    return _at_most(INT_MAX, value)


def java_long(value: int | None) -> int | None:
    """Return the value of an option, or refuse it if it does not fit into Java's ``long``."""
    return _at_most(LONG_MAX, value)


def bounded(value: float | None) -> float | None:
    """Return the value of an option in seconds and the like; a refusal beyond a billion.

    No clock and no sum of times takes all that Python reads as a number.
    """
    return _at_most(1_000_000_000, value)


def _at_most(limit: int, value: _Number | None) -> _Number | None:
    if value is not None and value > limit:
        raise typer.BadParameter(f"{value} is more than {limit}")
    return value


def _java_longs(values: list[int] | None) -> list[int] | None:
    return [each for each in values if java_long(each) is not None] if values else values


QueueId = Annotated[int, typer.Option(metavar="Q", min=0, callback=java_int, help="Queue ID.")]
CutAt = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        callback=java_long,
        help="Phy offset of the damage at which to cut the log. All records from there on are"
        " removed.",
    ),
]
PassOver = Annotated[
    list[int] | None,
    typer.Option(
        metavar="N",
        min=0,
        callback=_java_longs,
        help="Phy offset of a damaged record to skip. Its message is lost. May be repeated.",
    ),
]
Topic = Annotated[str, typer.Option(metavar="T", help="Topic name.")]
Yes = Annotated[
    bool, typer.Option("--yes", help="Apply the changes. Without --yes they are only listed.")
]
NOT_APPLIED = "nothing was changed (use --yes to apply)"
"""Note of a command that lists what ``--yes`` would change."""
WOULD_BE_DELETED = "would be deleted (use --yes to delete them)"
Format = Annotated[OutputFormat, typer.Option("--output", help="Output format.")]
Rows = Annotated[RowFormat, typer.Option("--output", help="Output format.")]
"""Of a verb whose rows all have the same columns."""


def read_config(
    path: Path | None, root: Path | None = None, *, puts: bool = False, is_new: bool = False
) -> StoreConfig:
    """Return the broker's settings from ``path``; report keys with an unexpected effect.

    With ``--verbose`` keys that are not ours are named too. Of a store in ``root`` it is said that
    the settings are of another one, and a log below that one's folder is looked for in ``root``.
    What promises replicas stays for a verb that ``puts``. ``is_new``: a store for another broker is
    made in ``root``, so the folders count as they are named.

    Raises:
        StoreConfigError: no properties, a setting of cqstore's own does not fit; or, for a verb
            that ``puts``, a key is misspelt or a setting has another value than the file shows: it
            may be the one that asks for durable puts.
        StoreIOError: it cannot be read.
    """
    if path is None:
        return StoreConfig()
    conf = BrokerConf.read(path)
    notes = list(conf.notes(root, is_new=is_new))
    if puts and (wrong := [each.sentence for each in notes if each.keeps_out_puts]):
        raise StoreConfigError(f"{'; '.join(wrong)}; no message was appended", path=path)
    config = conf.settings(None if is_new else root)
    _report_notes(conf, notes)
    return config if puts else config.without_replicas()


def read_configs(path: Path | None, *roots: Path | None) -> list[StoreConfig]:
    """Return the settings of several stores by one file, each as ``read_config`` returns them.

    If the file's ``storePathRootDir`` is one of the stores, its ``storePathCommitLog`` applies to
    that store and not to the others. ``None`` in ``roots``: a running master, not a folder. Each
    note is reported once.

    Raises:
        StoreConfigError, StoreIOError: as ``read_config``.
    """
    if path is None:
        return [StoreConfig() for _ in roots]
    conf = BrokerConf.read(path)
    _report_notes(conf, dict.fromkeys(each for root in roots for each in conf.notes(root)))
    stores = [root for root in roots if root is not None]
    return [conf.settings(root, beside=stores).without_replicas() for root in roots]


def _report_notes(conf: BrokerConf, notes: Iterable[ConfNote]) -> None:
    """Report what is not as it looks; with ``--verbose`` also the keys that are not ours."""
    for each in notes:
        note(f"{conf.path}: {each.sentence}")
    if VERBOSE.get() and (unknown := conf.unknown()):
        note(f"{conf.path}: keys that cqstore ignores: {', '.join(sorted(unknown))}")


def open_store(
    root: Path,
    config: Path | StoreConfig | None,
    backend: str | None,
    commit_log: Path | None,
    *,
    read_only: bool = True,
    **settings: object,
) -> MessageStore:
    """Open the store with the options and ``settings``.

    Notes on stderr report that another process has the store open, that the log is damaged, or
    that the store needs recovery.
    """
    given = config if isinstance(config, StoreConfig) else read_config(config, root)
    with pointing_to_check(root):
        used = with_log_folder(given.model_copy(update=settings), commit_log)
        options = OpenOptions(read_only=read_only, backend=backend, housekeeping=False)
        store = open_served(MessageStore, root, used, options)
    note_state(store, root, read_only=read_only)
    return store


@contextmanager
def pointing_to_check(root: Path) -> Iterator[None]:
    """Say on stderr what lists all damage, where some keeps the store from being opened."""
    try:
        yield
    except CorruptionError:
        note(f"{root} is damaged: cqstore check lists all damage, --repair repairs a copy")
        raise


def about_end(root: Path, settings: StoreConfig) -> int | None:
    """Return about where the log of a store that is not open ends; ``None``: unknown."""
    try:
        return about_log_end(detect(root, settings).log_folders)
    except StoreError:  # opening the store reports that
        return None


def note_state(store: MessageStore, root: Path, *, read_only: bool = True) -> None:
    """Report the state of the store in ``root`` on stderr, see ``open_store``."""
    notes = store.report.notes
    for each in notes[:_MAX_NOTES]:
        note(str(each))
    if len(notes) > _MAX_NOTES:
        note(f"{len(notes) - _MAX_NOTES} more such files: cqstore check lists all of them")
    if read_only and (opener := opened_by(root)):
        note(opened_note(store, opener))
    elif store.report.damage is not None:
        note(f"{root}: the log is damaged: {store.report.damage} (cqstore check)")
    elif read_only and store.report.needed:
        note(f"{root}: the store needs recovery and is shown unrecovered (cqstore recover)")
    if not read_only:
        for lacking in filter(
            None, (each.lacking() for each in components_of(store).queues.backends())
        ):
            note(lacking)


def opened_by(root: Path) -> int:
    """Return the ID of the process that has the store open; 0 if there is none or it is unknown."""
    try:
        holder = locked_by(StorePaths(root))
    except StoreError:
        return 0
    return 0 if holder == os.getpid() else holder


def opened_note(store: MessageStore, opener: int) -> str:
    """Return what a reader of a store that process ``opener`` has open does not see."""
    in_memory = ""
    if any(each.name != "file" for each in components_of(store).queues.backends()):
        in_memory = "; data that its RocksDB has only in memory is not shown"
    return f"{store.root}: process {opener} has the store open and may be writing{in_memory}"


def open_to_delete(
    root: Path, config: Path | None, backend: str | None = None, *, yes: bool
) -> MessageStore:
    """Open an existing store that is not open elsewhere; read-only unless ``yes``.

    Raises:
        StoreLockedError: it is open elsewhere, so what would be deleted is not certain.
        RefusedStoreError: there is none.
    """
    refuse_if_open(StorePaths(root))
    settings = read_config(config, root)
    resolve_layout(root, settings, read_only=True)  # a new one is not to be made
    return open_store(root, settings, backend, None, read_only=not yes)


def refuse_beside(option: str, **others: object) -> None:
    """Refuse options that cannot be combined with ``option``, which was given.

    Raises:
        typer.BadParameter: one of ``others`` is not ``None``.
    """
    given = ["--" + name.replace("_", "-") for name, value in others.items() if value is not None]
    if given:
        raise typer.BadParameter(f"{', '.join(given)} cannot be combined with {option}")


def to_state(sentence: str) -> Any:
    """Return the option ``--to`` of a verb that leads a store to a state; its help lists them."""
    return typer.Option(
        "--to", parser=_state, autocompletion=_states, metavar="STATE",
        help=f"{sentence} One of {', '.join(store_modes())}.",
    )  # fmt: skip


def _states() -> list[str]:
    return [*store_modes()]


def _state(text: str) -> StoreMode:
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
        RefusedStoreError: there is none, or a file.
    """
    if exists(root):
        refuse_file(root)
    if not is_dir(root):
        raise RefusedStoreError("no such folder", path=root)


def check_is_store(root: Path, settings: StoreConfig, remedy: str = "") -> None:
    """Refuse a folder without a store, which a read-write open would make one of.

    A store that never had a message has a checkpoint. ``remedy`` is the end of the sentence.

    Raises:
        RefusedStoreError: neither commit log, queues nor checkpoint are there.
        StoreError: as ``detect``.
    """
    layout = detect(root, settings)
    if not (layout.has_log or layout.backends or is_file(layout.paths.checkpoint)):
        what = "no store here" if is_dir(root) else "no such folder"
        raise RefusedStoreError(f"{what}: is its file system mounted?{remedy}", path=root)


def note(text: str) -> None:
    """Print one line for the operator, on stderr."""
    print(f"cqstore: {text}", file=sys.stderr)
