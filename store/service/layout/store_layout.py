"""The content of a directory, before anything in it is opened for writing.

Stores that this project must not write to are detected here, with the reasons; they can still be
read if their records have our format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from cqstore.store.errors import RefusedStoreError, StoreConfigError, os_errors
from cqstore.store.journals.backend_state import BackendState, read_backend_state
from cqstore.store.journals.journal_manifest import check_kept
from cqstore.store.log.log_files import foreign_files, list_log_files, log_file_paths
from cqstore.store.path_kind import exists, is_dir, is_file, matching
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backend_replica import NO_LIGHT, Roles
from cqstore.store.queue.backends import backend, backends, only_as_files
from cqstore.store.queue.topic_choice import ONLY_LIGHT, is_whole, left_topics, roles_of
from cqstore.store.service.layout.log_paths import (
    LogPaths,
    log_paths,
    reasons_to_only_read,
    refuse_missing_paths,
)
from cqstore.store.service.layout.noted_log_paths import refuse_unlike_noted
from cqstore.store.service.layout.root_folder import refuse_file, refuse_no_log_folder
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.installed_backends import backend_of_type, known_types, taking_a_share
from cqstore.store.settings.replica_config import BrokerRole


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """The content of one folder, and why it must not be opened for writing."""

    paths: StorePaths
    log_paths: LogPaths
    has_log: bool
    backends: list[str]
    """Backends with queues here, sorted by name."""
    refusals: list[str] = field(default_factory=list)
    """Reasons why it must not be opened read-write."""
    backend_state: BackendState = field(default_factory=BackendState)
    """The record of its backends."""
    foreign: list[Path] = field(default_factory=list)
    """Files in the folder of the commit log that do not belong to it."""
    log_writer: str = ""
    """Why an opening for writing must not write the log: a broker of a set keeps it equal to the
    other replicas. Empty: it may be written."""

    @property
    def log_folders(self) -> list[Path]:
        """Return the folders with files of the log."""
        return self.log_paths.folders

    @property
    def is_new(self) -> bool:
        """Return whether nothing has been stored here: no log, queues, checkpoint or journal."""
        paths = self.paths
        return not (self.has_log or self.backends or is_file(paths.checkpoint) or exists(paths.own))

    @property
    def how_to_recover(self) -> str:
        """Return the operator's next step after an unclean stop or damaged queues."""
        if self.log_writer:
            return "start its broker, which recovers the store, and stop it again"
        return "run cqstore recover"

    @property
    def is_combined(self) -> bool:
        """Return whether two backends have queues, as double write leaves them."""
        return len(self.backends) > 1


def with_log_folder(config: StoreConfig, commit_log: Path | None) -> StoreConfig:
    """Return ``config`` with the commit log in the folder ``commit_log``; ``None``: unchanged.

    It may be several folders, as in ``storePathCommitLog``; ``detect`` checks those.

    Raises:
        RefusedStoreError: it is not the folder of a commit log.
    """
    if commit_log is None:
        return config
    if config.multi_path_splitter not in str(commit_log) or exists(commit_log):
        refuse_no_log_folder(commit_log)
    return config.model_copy(update={"store_path_commit_log": str(commit_log)})


def detect(root: Path, config: StoreConfig) -> StoreLayout:
    """Inspect ``root``, and the folders of ``storePathCommitLog``; changes nothing.

    Raises:
        RefusedStoreError: the content is ambiguous, the log is DLedger's, ``root`` is a file, or
            one of several folders of the log is missing.
        StoreConfigError: ``storePathCommitLog`` has an invalid path.
        CorruptionError: the record of its backends, or of the log's folders, is damaged.
        StoreIOError: a folder cannot be listed.
    """
    with os_errors("look at the store", root):
        return _detect(root, config)


def _detect(root: Path, config: StoreConfig) -> StoreLayout:
    """Inspect the folders of a store, and find reasons why it can only be read."""
    refuse_file(root)
    places = log_paths(root, config)
    paths = StorePaths(root, None if places.is_default else places.folders[0])
    replicated = _replicated(paths, config)
    refusals = [
        *reasons_to_only_read(root, places, config),
        *([] if config.moves_queues else replicated),
        *_foreign(paths, config),
    ]
    has_log = bool(log_file_paths(places.folders, missing_ok=True))
    found = present_backends(paths)
    check_kept(paths)
    state, foreign = read_backend_state(paths), foreign_files(places.folders)
    writer = "; ".join(replicated) if config.moves_queues else ""
    layout = StoreLayout(paths, places, has_log, found, refusals, state, foreign, writer)
    refuse_unlike_noted(paths, places.folders)
    if places.are_several:
        refuse_missing_paths(places, is_new=layout.is_new)
    return layout


def present_backends(paths: StorePaths) -> list[str]:
    """Return the backends with queues below a root, sorted by name; changes nothing.

    Raises:
        StoreIOError: a folder cannot be listed.
    """
    with os_errors("look at the store", paths.root):
        return [kind.name for kind in backends() if kind.present(paths)]


def refuse_log_elsewhere(
    root: Path, config: StoreConfig, conf: Path | None = None, *, unless_named: bool = False
) -> None:
    """Refuse settings that place the commit log of the new store ``root`` in another folder.

    Call it before the first byte is copied. Paths that lead to the same folder are the same.

    Args:
        root: the store to write; it need not exist.
        config: settings of the store.
        conf: the file that ``config`` was read from, for the error.
        unless_named: accept other folders if the settings name ``root`` as their store.

    Raises:
        RefusedStoreError: ``storePathCommitLog`` is another folder, or several.
        StoreConfigError: it has an invalid path.
    """
    text, found = config.store_path_commit_log, log_paths(root, config)
    if found.is_default or (unless_named and not any(reasons_to_only_read(root, found, config))):
        return
    raise RefusedStoreError(
        f"storePathCommitLog={text}: this key places the commit log of {root} in another folder;"
        f" expected {root / 'commitlog'} or no such key. Pass a copy of the configuration without"
        " the key, and start the broker on the new folder with that copy",
        path=conf,
    )


def _foreign(paths: StorePaths, config: StoreConfig) -> list[str]:
    """Return, per trace of another writer, the reason why the store can only be read.

    Raises:
        RefusedStoreError: it cannot be read either.
    """
    reasons: list[str] = []
    dledger = matching(paths.root, "dledger-*")
    if dledger or config.enable_dledger_commit_log:
        where = dledger[0] if dledger else paths.root
        if not _has_files(paths.commit_log):
            raise RefusedStoreError(
                "the commit log has the format of DLedger, which is not supported", path=where
            )
        reasons.append("it has a DLedger log")
    if config.duplication_enable:
        reasons.append("log duplication assigns its offsets (duplicationEnable)")
    if is_dir(paths.compaction_log) and any(paths.compaction_log.iterdir()):
        reasons.append("it has compacted topics (compaction/)")
    return reasons


def is_controlled(paths: StorePaths, config: StoreConfig) -> bool:
    """Return whether the store is that of a broker under a controller."""
    return exists(paths.epoch_file) or config.enable_controller_mode


def _replicated(paths: StorePaths, config: StoreConfig) -> list[str]:
    """Return the reasons why the log must stay equal to that of other brokers of a set."""
    reasons: list[str] = []
    if is_controlled(paths, config) and not config.follows_controlled:
        reasons.append(
            "a controller elects its master (epochFileCheckpoint, enableControllerMode); cqstore"
            " can follow such a master (cqstore follow --controller) and move the queues of the"
            " stopped broker (cqstore migrate), but not write its log"
        )
    if config.broker_role is BrokerRole.SLAVE:
        reasons.append("it is the store of a slave: only bytes of its master may be appended")
    return reasons


def _has_files(folder: Path) -> bool:
    return is_dir(folder) and any(is_file(path) for path in folder.iterdir())


def choose_backends(
    layout: StoreLayout, config: StoreConfig, requested: str | None, *, read_only: bool = False
) -> list[str]:
    """Return the backends to open; the first one is read.

    The mode that was set decides, otherwise the content of the disk, with double write also the
    backends that the settings load; for a new store ``requested`` or ``storeType``. ``requested``
    selects the one to read. Read-only, only existing backends are opened, and a lagging one is not
    served.

    Raises:
        RefusedStoreError: ``requested`` has no queues here but another backend has, or lags; or
            there are queues that the settings do not load.
        StoreConfigError: an unknown ``storeType``.
    """
    if requested is not None:
        backend(requested)
    names = _kept(layout, config, requested, read_only=read_only)
    left = left_topics(layout.backend_state.choice)
    refusal = only_as_files(layout.paths, left=left) if len(names) > 1 and not read_only else None
    if refusal is not None:
        raise refusal
    if requested is not None and requested not in names:
        _refuse_requested(layout, requested)
    first = requested or names[0]
    if read_only:
        if requested is None:
            first = next((name for name in names if _is_servable(layout, name, names)), first)
        if not _is_servable(layout, first, names):
            raise RefusedStoreError(
                f"cannot read from the {first} queues: they lag or hold only some topics. Open the"
                " store for writing (cqstore recover) to let them catch up",
                path=layout.paths.root,
            )
    return [first, *(name for name in names if name != first)]


def check_backend(config: StoreConfig, name: str | None) -> None:
    """Refuse a backend if ``storeType`` is set and names another one.

    Raises:
        StoreConfigError: ``storeType`` names another backend.
    """
    if name is None or "store_type" not in config.model_fields_set:
        return
    backend(name)
    kept = _configured(config)
    if name not in kept:
        raise StoreConfigError(
            f"backend={name!r} contradicts storeType={config.store_type!r}, which keeps"
            f" the queues in {' and '.join(map(repr, kept))}. Give only one of the two"
        )


def _is_servable(layout: StoreLayout, name: str, names: Sequence[str]) -> bool:
    given = layout.backend_state.covers.get(name)
    whole = is_whole(layout.backend_state.choice, name, given) or (
        given == NO_LIGHT and taking_a_share(names) is not None
    )
    return whole and name not in layout.backend_state.lagging


def _refuse_requested(layout: StoreLayout, requested: str) -> NoReturn:
    """Refuse to read backend ``requested``.

    Raises:
        RefusedStoreError: always, with the reason.
    """
    if (state := layout.backend_state.mode) is not None:
        raise RefusedStoreError(
            f"backend {requested!r} is not in use: the store's state is {state} (see cqstore mode)",
            path=layout.paths.root,
        )
    raise RefusedStoreError(
        f"the queues are in backend {layout.backends[0]!r}, not {requested!r}: opening"
        f" {requested!r} would hide them",
        path=layout.paths.root,
    )


def _kept(
    layout: StoreLayout, config: StoreConfig, requested: str | None, *, read_only: bool
) -> list[str]:
    """Return the backends in use, in the order in which they would be read."""
    there, state = layout.backends, layout.backend_state.mode
    if state is not None:
        names = list(state.backends)
    elif not there:
        return [requested] if requested else _configured(config)
    else:
        names = list(there)
        kind = backend_of_type(config.store_type)
        if config.rocksdb_cq_double_write_enable and kind is not None and kind.honours_double_write:
            names = config.loaded_backends
            if left := [name for name in there if name not in names]:
                raise RefusedStoreError(
                    f"combineCQLoadingCQTypes does not load the {left[0]} queues of this store:"
                    " they would be left behind. Use cqstore mode to leave a backend",
                    path=layout.paths.root,
                )
        if config.preferred_backend in names:
            first = config.preferred_backend
            names = [first, *(name for name in names if name != first)]
    if read_only:
        return [name for name in names if name in there] or names
    return names


def _configured(config: StoreConfig) -> list[str]:
    """Return the backends that the settings name for a store without queues.

    Raises:
        StoreConfigError: the settings name no backend.
    """
    kind = backend_of_type(config.store_type)
    if kind is None:
        raise StoreConfigError(f"invalid storeType {config.store_type!r}: expected {known_types()}")
    if not (config.rocksdb_cq_double_write_enable and kind.honours_double_write):
        return [kind.name]
    first = config.preferred_backend
    return [first, *(name for name in config.loaded_backends if name != first)]


def choose_roles(
    names: Sequence[str], config: StoreConfig, choice: Mapping[str, str] | None = None
) -> Roles:
    """Return the roles of the backends, the first of which is read.

    ``choice``: the topics that a move gave to backends; it counts before the settings.

    Raises:
        StoreConfigError: RocksDB gets some topics only, and would be read or assign offsets.
    """
    read, assign = names[0], config.assigning_backend
    assign = assign if assign in names and assign is not None else read
    sharing = taking_a_share(names)
    given = {name: text for name, text in (choice or {}).items() if name in names}
    if ONLY_LIGHT in {given.get(read), given.get(assign)}:
        raise StoreConfigError(
            f"the {sharing or read} queues hold only the light queues, so they can neither serve"
            " the other topics nor assign their offsets"
        )
    if (chosen := roles_of(given, read, assign, sharing if len(names) > 1 else None)) is not None:
        return chosen
    if sharing is None or len(names) == 1:
        return Roles(read, assign)
    selection, light = config.double_write_selection, config.combine_cq_use_rocksdb_for_lmq
    if selection is None:
        return Roles(read, assign, sharing, light)
    if sharing in {read, assign}:
        raise StoreConfigError(
            "rocksdbCQSelectiveDoubleWriteEnable leaves topics out of RocksDB, so RocksDB"
            " cannot serve reads"
        )
    if light:
        selection = f"{selection};{ONLY_LIGHT}"
    return Roles(read, assign, sharing if light else None, light, {sharing: selection})


def found_sizes(layout: StoreLayout, config: StoreConfig) -> dict[str, int]:
    """Return the file sizes found in the files, for settings that were not given.

    Raises:
        StoreConfigError: a given size contradicts all files: a wrong setting, not damage.
    """
    files = list_log_files(layout.log_folders).values()
    sizes = {length for _, length in files}
    if "mapped_file_size_commit_log" not in config.model_fields_set:
        return {"mapped_file_size_commit_log": max(sizes)} if sizes else {}
    _check_log_size([path for path, _ in files], sizes, config.mapped_file_size_commit_log)
    return {}


def _check_log_size(files: Sequence[Path], sizes: set[int], given: int) -> None:
    """Refuse a size that is not that of the log files. A single shorter file may be truncated.

    Raises:
        StoreConfigError: the size is wrong.
    """
    if len(sizes) != 1 or given in sizes:
        return
    (found,) = sizes
    if len(files) > 1 or found > given:
        raise StoreConfigError(
            f"mappedFileSizeCommitLog={given} is a wrong setting: the commit log files here have"
            f" {found} bytes, and a broker does not start with another size. Remove"
            f" mappedFileSizeCommitLog from the settings, or set it to {found}",
            path=min(files),
        )
