"""What a folder holds, and by which settings it is to be opened; or why it must not be."""

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
    """Inspect the files; return the layout, and the settings with the sizes that the files show.

    ``fed``: followers are fed from this store.

    Raises:
        RefusedStoreError: it must not be opened this way.
        StoreConfigError: to write, under settings that promise replicas that no process feeds,
            or promise what is not kept here.
    """
    layout = detect(root, config)
    if read_only and (elsewhere := layout.paths.commit_log_override) is not None:
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
        RefusedStoreError: it is one; the sentence says why.
    """
    if layout.refusals:
        raise RefusedStoreError(
            f"this store can only be opened read-only: {'; '.join(layout.refusals)}",
            path=layout.paths.root,
        )


def _refuse_promises(root: Path, config: StoreConfig, *, fed: bool) -> None:
    """Refuse settings that promise replicas which nothing makes.

    Raises:
        StoreConfigError: they do.
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
