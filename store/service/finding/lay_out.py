"""What a folder holds, and by which settings it is to be opened; or why it must not be."""

from pathlib import Path

from store.config import StoreConfig
from store.errors import RefusedStoreError, StoreConfigError
from store.service.finding.store_layout import StoreLayout, detect, found_sizes


def lay_out(
    root: Path, config: StoreConfig, commit_log: Path | None, *, read_only: bool
) -> tuple[StoreLayout, StoreConfig]:
    """Look at what is there; return it, and the settings with the sizes that the files show.

    Raises:
        RefusedStoreError: it must not be opened this way.
        StoreConfigError: to write, under settings that promise replicas.
    """
    layout = detect(root, config, commit_log)
    if read_only and not (layout.has_log or layout.backends):
        raise RefusedStoreError("no store here: neither commit log nor queues", path=root)
    if layout.refusals and not read_only:
        raise RefusedStoreError(
            f"this store can only be read (open it read-only): {'; '.join(layout.refusals)}",
            path=root,
        )
    if config.replica_promises and not read_only:
        raise StoreConfigError(
            f"{', '.join(config.replica_promises)} promises replicas of each message, and there is"
            " no replication: nothing may be put under it (open the store read-only, or without)",
            path=root,
        )
    return layout, config.model_copy(update=found_sizes(layout, config))
