"""The content of a folder, and the settings to open it with; or why it must not be opened."""

from pathlib import Path

from cqstore.store.errors import RefusedStoreError, StoreConfigError
from cqstore.store.path_kind import is_dir
from cqstore.store.service.layout.file_notes import refuse_foreign_files
from cqstore.store.service.layout.root_folder import refuse_no_log_folder, refuse_part
from cqstore.store.service.layout.store_layout import StoreLayout, detect, found_sizes
from cqstore.store.settings.config import StoreConfig


def resolve_layout(
    root: Path, config: StoreConfig, *, read_only: bool, fed: bool = False
) -> tuple[StoreLayout, StoreConfig]:
    """Inspect the files; return the layout, and the settings with sizes found in the files.

    ``fed``: followers replicate from this store.

    Raises:
        RefusedStoreError: the store must not be opened this way.
        StoreConfigError: the settings, for writing, require replicas that no process feeds, or
            guarantees that are not supported here.
    """
    layout = detect(root, config)
    if (elsewhere := layout.paths.commit_log_override) is not None and not (
        layout.log_paths.are_several or (layout.is_new and not read_only)
    ):
        refuse_no_log_folder(elsewhere, layout.paths.root / "commitlog")
    if not (layout.has_log or layout.backends):
        if read_only:
            what = "neither commit log nor queues" if is_dir(root) else "no such folder"
            raise RefusedStoreError(f"no store here: {what}", path=root)
        refuse_part(root)
    if not read_only:
        refuse_read_only(layout)
        refuse_foreign_files(root, layout.foreign)
        _refuse_promises(root, config, fed=fed)
    return layout, config.model_copy(update=found_sizes(layout, config))


def refuse_read_only(layout: StoreLayout) -> None:
    """Refuse a store that can only be read, before work is done whose result could not be used.

    Raises:
        RefusedStoreError: the store can only be read; the error has the reason.
    """
    if layout.refusals:
        raise RefusedStoreError(
            f"this store can only be opened read-only: {'; '.join(layout.refusals)}",
            path=layout.paths.root,
        )


def _refuse_promises(root: Path, config: StoreConfig, *, fed: bool) -> None:
    """Refuse settings that require replicas which do not exist.

    Raises:
        StoreConfigError: the settings require such replicas.
    """
    if fed and config.unkept_promises:
        raise StoreConfigError("; ".join(config.unkept_promises), path=root)
    if not fed and config.replica_promises:
        raise StoreConfigError(
            f"{', '.join(config.replica_promises)} promises replicas of each message, but this"
            " store has no followers. Open the store read-only, remove the setting, or open it with"
            " replicas",
            path=root,
        )
