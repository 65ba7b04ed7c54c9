"""Options of both data sources, and how a store is opened with them in any process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cqstore.store.errors import StoreConfigError, os_errors
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.paths import named_path
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.layout.store_layout import with_log_folder
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.settings.broker_conf import BrokerConf
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.validation import faults

_SEVERAL = "paths"  # what Spark makes of load([one, another])


class SourceOptions(BaseModel):
    """Options as passed by Spark: names in lower case, values as text. Frozen, small."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    """Root of the store."""
    config: Path | None = None
    """The broker's configuration file."""
    backend: str | None = None
    """Backend to read of a combined store."""
    commitlog: Path | None = None
    """Folder of a commit log outside the root."""
    crc: bool = False
    """Log: check the CRC of every body, and fail at the first mismatch."""
    body: bool = False
    """Log: add the column ``body``."""
    store_timestamp: bool = False
    """Queues: add the columns ``store_timestamp`` and ``store_time``; with queues in files each
    unit needs a read of the log."""
    pushdown: bool = False
    """Accept filters from Spark: only for a frame that is loaded for one query and used in it once.
    Spark (seen in 4.3) reuses the pushed filters of one use of a frame for a later use without
    filters, and for both sides of a union."""
    partition_units: int = Field(1_000_000, ge=1)
    """Queues: approximate number of units per task."""
    partition_bytes: int = Field(256 << 20, ge=1)
    """Log: approximate bytes of the files per task; files are never split."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Return the options in ``given``.

        Raises:
            StoreConfigError: an option or a value is invalid, or there is not exactly one path.
            RefusedStoreError: a path is empty.
        """
        if _SEVERAL in given:
            raise StoreConfigError("load() takes exactly one path")
        for name in ("path", "config", "commitlog"):
            named_path(given.get(name, name))
        if "path" not in given:
            raise StoreConfigError("load() needs the root of a store: load(ROOT)")
        try:
            return cls.model_validate(dict(given))
        except ValidationError as exc:
            raise StoreConfigError(
                f"invalid option of the data source: {'; '.join(faults(exc))}"
            ) from exc

    def as_text(self, **changed: bool) -> dict[str, str]:
        """Return the options for Spark without the path, with ``changed`` values."""
        given = self.model_copy(update=changed).model_dump(
            mode="json", exclude_none=True, exclude={"path"}
        )
        return {name: str(value) for name, value in given.items()}

    def check_root(self) -> None:
        """Refuse a path that is not a store; opens nothing.

        Raises:
            RefusedStoreError: there is no store.
        """
        resolve_layout(self.path, self._settings(), read_only=True)

    def open_store(self) -> MessageStore:
        """Open the store read-only: no lock, no byte changed.

        Raises:
            StoreError: as ``MessageStore.open``.
        """
        options = OpenOptions(read_only=True, backend=self.backend, housekeeping=False)
        return open_served(MessageStore, self.path, self._settings(), options)

    def open_log(self) -> CommitLog:
        """Open only the log, read-only; it ends with its last file, not with its last record.

        Raises:
            StoreError: as ``MessageStore.open``.
        """
        with os_errors("open the commit log", self.path):
            layout, config = resolve_layout(self.path, self._settings(), read_only=True)
            log = CommitLog(layout.log_folders, config, read_only=True)
            log.load()
        return log

    def _settings(self) -> StoreConfig:
        if self.config is None:
            return with_log_folder(StoreConfig(), self.commitlog)
        given = BrokerConf.read(self.config).settings(self.path)
        return with_log_folder(given, self.commitlog)
