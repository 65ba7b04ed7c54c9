"""The options of both data sources, and the opening of a store by them, in any process."""

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
    """Options as Spark hands them over: names in lower case, values as text. Frozen, small."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    """Root of the store."""
    config: Path | None = None
    """The broker's configuration file."""
    backend: str | None = None
    """Backend to read of a combined store."""
    commitlog: Path | None = None
    """Folder of a commit log that lies elsewhere."""
    crc: bool = False
    """Log: check every body's CRC, and fail at the first that is wrong."""
    body: bool = False
    """Log: have the column ``body``."""
    store_timestamp: bool = False
    """Queues: have the columns ``store_timestamp`` and ``store_time``; a look into the log a unit
    where the queues are files."""
    pushdown: bool = False
    """Take filters from Spark: for a frame that is loaded for one query and used in it once. Spark
    (4.3, seen) keeps what one use of a frame pushed down, and gives those rows alone to a later
    use without filters, or to both sides of a union."""
    partition_units: int = Field(1_000_000, ge=1)
    """Queues: units of one task, about."""
    partition_bytes: int = Field(256 << 20, ge=1)
    """Log: bytes of the files of one task, about; a file is never divided."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Return the options in ``given``.

        Raises:
            StoreConfigError: none of ours, a value that does not fit, or not one path.
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
        """Return the options for Spark, but for the path, some of them ``changed``."""
        given = self.model_copy(update=changed).model_dump(
            mode="json", exclude_none=True, exclude={"path"}
        )
        return {name: str(value) for name, value in given.items()}

    def check_root(self) -> None:
        """Refuse what is no store at a glance; opens nothing.

        Raises:
            RefusedStoreError: there is none.
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
        """Open the log alone, read-only; it ends with its last file, not with its last record.

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
