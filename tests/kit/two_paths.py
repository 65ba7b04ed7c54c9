"""A commit log in two folders of its store, in which RocketMQ's files take turns."""

from pathlib import Path

from cqstore.store.settings.config import StoreConfig

FOLDERS = ("commitlog", "more-log")


def in_two_paths(root: Path, config: StoreConfig) -> StoreConfig:
    """Return ``config`` with the log of the store ``root`` in ``FOLDERS``."""
    text = ",".join(str(root / name) for name in FOLDERS)
    return config.model_copy(update={"store_path_commit_log": text})
