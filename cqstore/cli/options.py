"""Options shared by several verbs, and functions that open a store with them."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
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
from cqstore.store.settings.ignored_keys import by_reason
from cqstore.store.settings.installed_backends import backend_names

_MAX_NOTES = 3
"""Maximum number of notes about files that a verb prints; ``check`` prints all."""


def meant(place: Path | None) -> Path | None:
    """Return the folder given as a store.

    Raises:
        RefusedStoreError: the path is a file, or a folder inside a store, which the error names.
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
        "--commitlog",
        metavar="PATH",
        help="Folder of the commit log, if it is outside DIR; several, separated by commas.",
    ),
]


_Number = TypeVar("_Number", int, float)


def java_int(value: int | None) -> int | None:
    """Return the value of an option, or refuse it if it does not fit into Java's ``int``.

    With typer's ``max``, the help of each option would show this long number.
    """
    return _at_most(INT_MAX, value)


def java_long(value: int | None) -> int | None:
    """Return the value of an option, or refuse it if it does not fit into Java's ``long``."""
    return _at_most(LONG_MAX, value)


def bounded(value: float | None) -> float | None:
    """Return the value of an option, such as seconds, or refuse it above a billion.

    Clocks and sums of times do not support every number that Python can parse.
    """
    return _at_most(1_000_000_000, value)


def _at_most(limit: int, value: _Number | None) -> _Number | None:
    if value is not None and value > limit:
        raise typer.BadParameter(f"{value} is more than {limit}")
    return value


def _java_longs(values: list[int] | None) -> list[int] | None:
    return [each for each in values if java_long(each) is not None] if values else values


QueueId = Annotated[int, typer.Option(metavar="Q", min=0, callback=java_int, help="Queue ID.")]
OneQueue = Annotated[
    int | None, typer.Option(metavar="Q", min=0, callback=java_int, help="Queue ID. Default: 0.")
]
FirstOffset = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=0, callback=java_long, help="First queue offset. Default: the minimum."
    ),
]
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
New = Annotated[bool, typer.Option("--new", help="Create the store if it does not exist.")]
NOT_APPLIED = "nothing was changed (use --yes to apply)"
"""Note of a command that lists what ``--yes`` would change."""
WOULD_BE_DELETED = "would be deleted (use --yes to delete them)"
Format = Annotated[OutputFormat, typer.Option("--output", help="Output format.")]
Rows = Annotated[RowFormat, typer.Option("--output", help="Output format.")]
"""Output option of a verb whose rows all have the same columns."""


def read_config(
    path: Path | None, root: Path | None = None, *, puts: bool = False, is_new: bool = False
) -> StoreConfig:
    """Return the broker's settings from ``path``; report keys with an unexpected effect.

    With ``--verbose``, keys that cqstore ignores are reported too. If the settings belong to a
    store other than ``root``, that is reported, and a log below the other store's folder is
    searched below ``root``. Settings that promise replicas are kept only for a verb that ``puts``.
    ``is_new``: a store for another broker is created in ``root``, so the folders are used as named.

    Raises:
        StoreConfigError: the file is not a properties file, or a setting of cqstore itself is
            invalid. For a verb that ``puts``, also if a key is misspelt or a setting has a value
            other than the one in the file: it may be the setting that requests durable puts.
        StoreIOError: the file cannot be read.
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


def config_to_put(path: Path | None, root: Path, *, new: bool) -> StoreConfig:
    """Return the settings of a verb that puts; refuse a folder without a store unless ``new``.

    Raises:
        StoreError: see ``read_config`` and ``check_is_store``.
    """
    settings = read_config(path, root, puts=True)
    if not new:
        check_is_store(root, settings, " (use --new to create a store)")
    return settings


def read_configs(path: Path | None, *roots: Path | None) -> list[StoreConfig]:
    """Return the settings of several stores from one file, each as from ``read_config``.

    If the file's ``storePathRootDir`` is one of the stores, its ``storePathCommitLog`` applies to
    that store and not to the others. ``None`` in ``roots``: a running master, not a folder. Each
    note is reported once.

    Raises:
        StoreConfigError, StoreIOError: see ``read_config``.
    """
    if path is None:
        return [StoreConfig() for _ in roots]
    conf = BrokerConf.read(path)
    _report_notes(conf, dict.fromkeys(each for root in roots for each in conf.notes(root)))
    stores = [root for root in roots if root is not None]
    return [conf.settings(root, beside=stores).without_replicas() for root in roots]


def _report_notes(conf: BrokerConf, notes: Iterable[ConfNote]) -> None:
    """Report the warnings about the file; with ``--verbose``, also the ignored keys."""
    for each in notes:
        note(f"{conf.path}: {each.sentence}")
    if VERBOSE.get():
        for reason, keys in by_reason(sorted(conf.unknown())).items():
            note(f"{conf.path}: cqstore ignores {', '.join(keys)} ({reason})")


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
    """Name ``cqstore check`` on stderr if damage keeps the store from being opened."""
    try:
        yield
    except CorruptionError:
        note(f"{root} is damaged: cqstore check lists all damage, --repair repairs a copy")
        raise


def about_end(root: Path, settings: StoreConfig) -> int | None:
    """Return the approximate end of the log of a closed store; ``None`` if it is unknown."""
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
            note_once(lacking)


def opened_by(root: Path) -> int:
    """Return the ID of the process that has the store open; 0 if none or if it is unknown."""
    try:
        holder = locked_by(StorePaths(root))
    except StoreError:
        return 0
    return 0 if holder == os.getpid() else holder


def opened_note(store: MessageStore, opener: int) -> str:
    """Return a note on the data that process ``opener`` hides from readers of its open store."""
    in_memory = ""
    if any(each.name != "file" for each in components_of(store).queues.backends()):
        in_memory = "; data that its RocksDB has only in memory is not shown"
    return f"{store.root}: process {opener} has the store open and may be writing{in_memory}"


def open_to_delete(
    root: Path, config: Path | None, backend: str | None = None, *, yes: bool
) -> MessageStore:
    """Open an existing store that is not open elsewhere; read-only unless ``yes``.

    Raises:
        StoreLockedError: the store is open elsewhere, so what would be deleted is uncertain.
        RefusedStoreError: there is no store.
    """
    refuse_if_open(StorePaths(root))
    settings = read_config(config, root)
    resolve_layout(root, settings, read_only=True)  # refuses to create a store
    return open_store(root, settings, backend, None, read_only=not yes)


def refuse_beside(option: str, **others: object) -> None:
    """Refuse options that cannot be combined with ``option``, which was given.

    Raises:
        typer.BadParameter: one of ``others`` is not ``None``.
    """
    given = ["--" + name.replace("_", "-") for name, value in others.items() if value is not None]
    if given:
        raise typer.BadParameter(f"{', '.join(given)} cannot be combined with {option}")


def refuse_without(option: str, **others: object) -> None:
    """Refuse options that need ``option``, which was not given.

    Raises:
        typer.BadParameter: one of ``others`` is not ``None``.
    """
    given = ["--" + name.replace("_", "-") for name, value in others.items() if value is not None]
    if given:
        raise typer.BadParameter(f"{', '.join(given)} cannot be used without {option}")


def to_state(sentence: str) -> Any:
    """Return the option ``--to`` of a verb that changes a store's state; its help lists all."""
    return typer.Option(
        "--to", parser=_state, autocompletion=_states, metavar="STATE",
        help=f"{sentence} One of {', '.join(store_modes())}.",
    )  # fmt: skip


def _states() -> list[str]:
    return [*store_modes()]


def _state(text: str) -> StoreMode:
    """Return the state of a store that an option names.

    Raises:
        typer.BadParameter: there is no such state; the error names all states.
    """
    try:
        return StoreMode(text)
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from exc


def check_is_there(root: Path) -> None:
    """Refuse a folder that does not exist, so that no new store is created.

    Raises:
        RefusedStoreError: the folder does not exist, or is a file.
    """
    if exists(root):
        refuse_file(root)
    if not is_dir(root):
        raise RefusedStoreError("no such folder", path=root)


def check_is_store(root: Path, settings: StoreConfig, remedy: str = "") -> None:
    """Refuse a folder without a store, in which a read-write open would create one.

    A store that never had a message has a checkpoint. ``remedy`` is the end of the error message.

    Raises:
        RefusedStoreError: the folder has no commit log, no queues and no checkpoint.
        StoreError: see ``detect``.
    """
    layout = detect(root, settings)
    if not (layout.has_log or layout.backends or is_file(layout.paths.checkpoint)):
        what = "no store here" if is_dir(root) else "no such folder"
        raise RefusedStoreError(f"{what}: is its file system mounted?{remedy}", path=root)


@cache
def note_once(text: str) -> None:
    """Print one line for the operator, on stderr, once a process."""
    note(text)


def note(text: str) -> None:
    """Print one line for the operator, on stderr."""
    print(f"cqstore: {text}", file=sys.stderr)
