"""StoreConfig: every setting with its unit and default, and RocketMQ's key as alias."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cqstore.store.errors import StoreConfigError
from cqstore.store.java_numbers import INT_MAX
from cqstore.store.settings.installed_backends import (
    backends_of,
    installed,
    known_types,
    taking_a_share,
)
from cqstore.store.settings.replica_config import ReplicaConfig
from cqstore.store.settings.topic_classes import classes_of, is_share
from cqstore.store.settings.validation import faults

CQ_UNIT_SIZE = 20
"""Size of one unit of a file queue, in bytes; file sizes are rounded up to a multiple of this."""
_HOURS = 24
_OWN_SIZES = {"rocksdb_memory_bytes"}
"""Settings that RocketMQ does not have and that may exceed a Java ``int``."""
_NO_SEPARATOR = frozenset("/.$|()[]{}^?*+\\ \t\r\n")
"""Characters that cannot separate paths, or have a meaning in a regular expression."""


class FlushDiskType(StrEnum):
    """When a put returns: after the record is on disk, or immediately."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


class RocksDBEngine(StrEnum):
    """Implementation that opens RocksDB databases."""

    AUTO = "auto"
    """``NATIVE`` if it is available, else ``ROCKSDICT``."""
    NATIVE = "native"
    ROCKSDICT = "rocksdict"


def _blank_is_none(value: object) -> object:
    return None if isinstance(value, str) and not value.strip() else value


BlockCompression = Literal["none", "snappy", "z", "bzip2", "lz4", "lz4hc", "zstd"]
"""Compressions by RocketMQ's names; ``none``: any text that RocketMQ does not recognize."""
OptionalText = Annotated[str | None, BeforeValidator(_blank_is_none)]


class StoreConfig(ReplicaConfig):
    """Settings of one store. Immutable.

    Name a field by its Python name or by RocketMQ's camelCase key. A size that is not given
    (``model_fields_set``) is taken from the files of an existing store if they show it.
    """

    store_type: str = "default"
    """``default`` (file queues) or ``defaultRocksDB``, compared ignoring case."""
    rocksdb_cq_double_write_enable: bool = False
    """With ``store_type=default``: write to the backends of ``combine_cq_loading_cq_types``."""
    combine_cq_loading_cq_types: str = "default;defaultRocksDB"
    """Under double write: ``default`` (files), ``defaultRocksDB`` or both, separated by semicolons.
    Other words are ignored, as in RocketMQ."""
    combine_cq_prefer_cq_type: str = "default"
    """Under double write: the backend that is read."""
    combine_assign_offset_cq_type: OptionalText = None
    """Under double write: the backend that queue offsets are taken from. Default: the backend that
    is read (in RocketMQ: the files)."""
    combine_cq_use_rocksdb_for_lmq: bool = False
    """Under double write: read light queues from RocksDB, and take their offsets from there."""
    rocksdb_cq_selective_double_write_enable: bool = False
    """Under double write: write only the topics of ``double_write_topics`` to RocksDB."""
    double_write_topics: OptionalText = None
    """Topic names, separated by semicolons; a ``*`` at the end matches all topics with that prefix.
    Not a key of RocketMQ, which uses the topics of type LITE."""
    ab_share: float = Field(default=0.0, ge=0, le=1)
    """Under double write: share of reads repeated on the other backend, 0 to 1. Not a RocketMQ
    key."""
    ab_shares: OptionalText = None
    """Shares per topic class, ``topics=share`` separated by semicolons, such as
    ``%RETRY%*=0.1;orders=1``. The first match counts; ``ab_share`` applies to all other topics.
    Not a RocketMQ key."""
    read_topics: OptionalText = None
    """Under double write: topics that are read from a different backend than the others, such as
    ``orders*=rocksdb;%RETRY%*=file``. The first match counts. While that backend is incomplete,
    these topics are read like all others. Not a RocketMQ key."""
    use_separate_store_path_for_rocksdb_cq: bool = False
    """Create a new RocksDB in ``consumequeue_rocksdb`` instead of ``consumequeue``."""
    store_path_commit_log: OptionalText = None
    """Folder of the commit log if it is not ``ROOT/commitlog``. Several, each after a comma: the
    files are spread over them. See ``store_path_root_dir``."""
    read_only_commit_log_store_paths: OptionalText = None
    """Folders in which no log file is created; files there are read and expire. As in RocketMQ,
    without effect unless ``store_path_commit_log`` contains a comma."""
    multi_path_splitter: str = ","
    """Separator of these folders. Not a RocketMQ key: a broker takes it from the system property
    ``rocketmq.broker.multiPathSplitter``."""
    store_path_root_dir: OptionalText = None
    """Root of the store that these settings belong to. A log outside of the root is only written
    if this key names the store."""
    enable_dledger_commit_log: bool = False
    """DLedger log: refused (the misspelling of the key is RocketMQ's)."""
    enable_controller_mode: bool = False
    """Auto-switch HA: the store is opened read-only."""
    follows_controlled: bool = False
    """The store is opened by a follower of a master under a controller and only appends the
    master's bytes. Not a RocketMQ key; ``cqstore follow --controller`` sets it."""
    moves_queues: bool = False
    """The store is opened to move its queues: if it is a replica of a set, its log is not written.
    Not a RocketMQ key; ``cqstore migrate`` sets it."""
    mapped_file_size_commit_log: int = Field(default=1 << 30, ge=256)
    """Size of one commit log file, in bytes."""
    mapped_file_size_consume_queue: int = Field(default=300_000 * CQ_UNIT_SIZE, ge=CQ_UNIT_SIZE)
    """Size of one queue file, in bytes, rounded up to a multiple of 20."""
    mapped_file_size_consume_queue_ext: int = Field(default=48 << 20, ge=64)
    """Size of one queue extension file, in bytes."""
    mapper_file_size_batch_consume_queue: int = Field(default=300_000 * 46, ge=46)
    """Size of one batch queue file, in bytes (the spelling is RocketMQ's)."""
    max_hash_slot_num: int = Field(default=5_000_000, ge=1)
    """Number of hash slots of one index file."""
    max_index_num: int = Field(default=20_000_000, ge=2)
    """Number of entries of one index file, including the unused first entry."""
    max_message_size: int = Field(default=4 << 20, ge=10, le=(1 << 30) - 1)
    """Maximum body size, in bytes; a whole record may have 64 KiB more."""
    auto_message_version_on_topic_len: bool = True
    """Write a V2 record (two-byte topic length) for topics of more than 127 characters."""
    enabled_append_prop_crc: bool = False
    """Append a CRC of the whole record as its last property."""
    force_verify_prop_crc: bool = False
    """Check the CRC of the whole record instead of the body CRC wherever records are checked."""
    check_crc_on_recover: bool = True
    """Check CRCs while recovering."""
    check_crc_on_pull: bool = False
    """Check the body CRC of each pulled message, as RocketMQ's client does. Not a RocketMQ key."""
    duplication_enable: bool = False
    """Log duplication mode: the store is opened read-only."""

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    """Whether a put waits for the disk."""
    flush_interval_commit_log: int = Field(default=500, ge=1)
    """Milliseconds between two flushes of the log under ``ASYNC_FLUSH``."""
    flush_commit_log_least_pages: int = Field(default=4, ge=0)
    """Minimum number of 4 KiB pages that such a flush writes."""
    flush_commit_log_thorough_interval: int = Field(default=10_000, ge=1)
    """Milliseconds after which a flush writes even a single byte."""
    flush_interval_consume_queue: int = Field(default=1_000, ge=1)
    """Milliseconds between two flushes of the file queues that have enough changed pages."""
    flush_consume_queue_least_pages: int = Field(default=2, ge=1)
    """Minimum number of changed 4 KiB pages for such a flush."""
    flush_consume_queue_thorough_interval: int = Field(default=60_000, ge=1)
    """Milliseconds between two flushes of all queues and of the checkpoint."""
    sync_flush_timeout: int = Field(default=5_000, ge=1)
    """Milliseconds that a put under ``SYNC_FLUSH`` waits for a sync begun by another thread."""

    transient_store_pool_enable: bool = False
    """Under ``ASYNC_FLUSH``: buffer records in memory before they are written to the log file."""
    commit_interval_commit_log: int = Field(default=200, ge=1)
    """Milliseconds between two checks of this buffer."""
    commit_commit_log_least_pages: int = Field(default=4, ge=0)
    """Minimum number of 4 KiB pages that such a check writes."""
    commit_commit_log_thorough_interval: int = Field(default=200, ge=1)
    """Milliseconds after which a check writes even a single byte."""
    warm_mapped_file_enable: bool = False
    """Write new log files with zeros before they are used (the spelling is RocketMQ's)."""
    flush_least_pages_when_warm: int = Field(default=4096, ge=1)
    """Number of 4 KiB pages of zeros that are synced at once."""

    file_reserved_time: int = Field(default=72, ge=0)
    """Hours that a commit log file is kept after its last write."""
    delete_when: str = "04"
    """Hours of the day at which expired files are deleted, separated by semicolons."""
    clean_resource_interval: int = Field(default=10_000, ge=1)
    """Milliseconds between two runs of the file deletion."""
    delete_commit_log_files_interval: int = Field(default=100, ge=0)
    """Milliseconds between the deletions of two files."""
    delete_file_batch_max: int = Field(default=10, ge=1)
    """Maximum number of files that one run deletes."""
    redelete_hanged_file_interval: int = Field(default=120_000, ge=1)
    """Milliseconds until the deletion of a file is retried."""
    clean_file_forcibly_enable: bool = True
    """Delete files that have not expired if the disk is nearly full."""
    disk_max_used_space_ratio: int = 75
    """Disk usage in percent above which expired files are deleted at any hour; 10 to 95."""
    disk_space_clean_forcibly_ratio: int = 85
    """Disk usage in percent above which the oldest files are deleted early; 30 to 85."""
    disk_space_warning_level_ratio: int = 90
    """Disk usage in percent above which puts are refused; 35 to 90."""

    enable_lmq: bool = False
    """Put messages into light queues named by ``INNER_MULTI_DISPATCH``."""
    enable_multi_dispatch: bool = False
    """Also needed for light queues on the file backend."""
    config_manager_version: str | None = None
    """``v2``: the broker keeps its metadata in ``config/rdb``. Default: as the last broker did.
    Metadata conversion and the embedded log use this setting; stores do not."""
    single_metadata: bool | None = None
    """With ``storeType=defaultRocksDB`` the broker keeps its metadata in ``config/metadata``."""
    max_lmq_consume_queue_num: int | None = Field(default=None, ge=0)
    """Maximum number of light queues; default: unlimited (RocketMQ does not enforce its 20,000)."""
    enable_consume_queue_ext: bool = False
    """File queues have extension files, which are read and never written."""
    allow_delay_without_service: bool = False
    """Store messages with a delay (``DELAY``, ``TIMER_*``) without a delay: readers see them
    immediately. If off, such a put is refused unless ``enable_schedule_message_service`` delivers
    it. Not a RocketMQ key."""
    enable_schedule_message_service: bool = False
    """Deliver messages with a delay level when they are due, as a broker does: a put with ``DELAY``
    is first stored in ``SCHEDULE_TOPIC_XXXX``. ``TIMER_*`` is still refused. Not a RocketMQ key."""
    flush_delay_offset_interval: int = Field(default=10_000, ge=1)
    """Milliseconds from a delivery until its offset is saved in ``config/delayOffset.json``."""
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    """Delay levels, counted from 1."""

    message_index_enable: bool = True
    """Index messages by key."""
    message_index_tags: bool = True
    """Also index messages by their whole tags, like RocketMQ 5.5 and unlike 5.3. Not a RocketMQ
    key."""
    max_filter_message_size: int = Field(default=16_000, ge=CQ_UNIT_SIZE)
    """Bytes of queue units that one pull may scan, at 20 bytes per unit."""
    max_msgs_num_batch: int = Field(default=64, ge=1)
    """Maximum number of messages that one query by key returns."""
    max_transfer_bytes_on_message_in_memory: int = Field(default=262_144, ge=1)
    """Maximum bytes per pull from records near the log's end, not counting the first message."""
    max_transfer_count_on_message_in_memory: int = Field(default=32, ge=1)
    """Maximum number of messages per pull from records near the log's end."""
    max_transfer_bytes_on_message_in_disk: int = Field(default=65_536, ge=1)
    """Maximum bytes per pull from records far from the log's end, not counting the first
    message."""
    max_transfer_count_on_message_in_disk: int = Field(default=8, ge=1)
    """Maximum number of messages per pull from records far from the log's end."""
    access_message_in_memory_max_ratio: int = Field(default=40, ge=0, le=100)
    """Percentage of the machine's memory; records within that distance of the log's end count as in
    memory."""
    max_consume_queue_scan: int = Field(default=20_000, ge=1)
    """Maximum number of units that one estimate scans."""
    sample_count_threshold: int = Field(default=5_000, ge=1)
    """Number of matches after which an estimate extrapolates."""

    mapped_files_max: int = Field(default=64, ge=2)
    """Maximum number of commit log files mapped at once."""
    handle_bus_errors: bool = False
    """Install a ``SIGBUS`` handler for the rest of the process: a mapped file that is truncated, or
    a page that the disk cannot read, then raises an error. If off, such a fault in the log ends the
    process, and queue and index files are read by system calls, which makes a short read take twice
    as long. On in the ``cqstore`` command. Not a RocketMQ key."""
    queue_files_max: int = Field(default=16_384, ge=16)
    """Maximum number of file descriptors that the file backend keeps open."""
    dispatch_slice: int = Field(default=16_384, ge=1)
    """Number of units that the writer collects before it passes them to the queues."""
    rocksdb_memory_bytes: int = Field(default=512 << 20, ge=8 << 20)
    """Memory budget of RocksDB, in bytes: a quarter for memtables, the rest for the block cache."""
    rocksdb_hot_queues: int = Field(default=1 << 20, ge=1)
    """Maximum number of queues whose first and last unit stay in memory after their first use, at
    130 bytes each."""
    rocksdb_compression_type: BlockCompression = "lz4"
    """Compression of RocksDB's tables of units, except the last level."""
    bottom_most_compression_type_for_consume_queue_store: BlockCompression = "zstd"
    """Compression of the last level."""
    rocksdb_max_size_amplification_percent: int = Field(default=25, ge=1)
    """Percentage of obsolete units above which RocksDB rewrites all tables of units."""
    stat_rocksdb_cq_interval_sec: int | None = Field(default=None, ge=1)
    """Seconds between two dumps of RocksDB's counters to its own log; default: 600 (RocketMQ: 10,
    to the broker's log)."""
    rocksdb_options: OptionalText = None
    """Database options that differ from RocketMQ's and from the settings above, by RocksDB's names,
    separated by semicolons, such as ``block_size=4096;compression=lz4``. Not a RocketMQ key."""
    rocksdb_engine: RocksDBEngine = RocksDBEngine.AUTO
    """Engine that opens databases. Not a RocketMQ key."""
    rocksdb_library: Path | None = None
    """For the native engine: a RocksDB library, a jar that contains one, or a folder with such a
    jar."""

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> Self:
        """Build a config from names or RocketMQ keys.

        Raises:
            StoreConfigError: a value is invalid, or a key is unknown; the error names all of them.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as exc:
            raise StoreConfigError(f"invalid setting: {'; '.join(faults(exc))}") from exc

    def without_schedule(self) -> Self:
        """Return the settings of a follower: the master delivers the delayed messages."""
        return self.model_copy(update={"enable_schedule_message_service": False})

    def as_learner(self) -> Self:
        """Return the settings for a follower of a master under a controller: it only appends."""
        changes = {"enable_controller_mode": False, "follows_controlled": True}
        return self.as_master().model_copy(update=changes)

    def to_move_queues(self) -> Self:
        """Return the settings with which a move opens the store: nothing is put to it."""
        return self.without_replicas().model_copy(update={"moves_queues": True})

    @classmethod
    def known_keys(cls) -> dict[str, str]:
        """Return RocketMQ's key → field name for every setting."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @model_validator(mode="after")
    def _check_double_write(self) -> Self:
        """Refuse settings of double write that contradict each other.

        Raises:
            ValueError: two settings contradict each other.
        """
        loaded = self.loaded_backends
        if not loaded:
            raise ValueError(
                f"combineCQLoadingCQTypes {self.combine_cq_loading_cq_types!r} names no known"
                f" type: expected {known_types()}"
            )
        roles = {
            "combineCQPreferCQType": self.combine_cq_prefer_cq_type,
            "combineAssignOffsetCQType": self.combine_assign_offset_cq_type,
        }
        for key, text in roles.items():
            named = loaded[:1] if text is None else backends_of(text)
            if len(named) != 1 or named[0] not in loaded:
                raise ValueError(f"{key} {text!r} is not in combineCQLoadingCQTypes")
        if self.combine_cq_use_rocksdb_for_lmq and taking_a_share(loaded) is None:
            raise ValueError("combineCQUseRocksdbForLmq needs defaultRocksDB to be loaded")
        self._check_selection()
        return self

    @model_validator(mode="after")
    def _check_delays(self) -> Self:
        """Refuse settings of delayed messages that contradict each other.

        Raises:
            ValueError: two settings contradict each other.
        """
        if self.enable_schedule_message_service and self.allow_delay_without_service:
            raise ValueError(
                "enableScheduleMessageService and allowDelayWithoutService exclude each other"
            )
        if self.enable_schedule_message_service and not self.message_delay_level.split():
            raise ValueError(
                "enableScheduleMessageService needs levels: messageDelayLevel is empty"
            )
        return self

    def _check_selection(self) -> None:
        """Refuse a selection of topics that contradicts the other settings.

        Raises:
            ValueError: the selection contradicts another setting.
        """
        if not self.rocksdb_cq_selective_double_write_enable:
            return
        roles = [self.combine_cq_prefer_cq_type, self.combine_assign_offset_cq_type]
        if any(text is not None and taking_a_share(backends_of(text)) for text in roles):
            raise ValueError(
                "rocksdbCQSelectiveDoubleWriteEnable leaves topics out of RocksDB: it can neither"
                " serve reads (combineCQPreferCQType) nor assign offsets"
                " (combineAssignOffsetCQType)"
            )
        if not self.double_write_selection:
            raise ValueError(
                "rocksdbCQSelectiveDoubleWriteEnable needs doubleWriteTopics, the topics to"
                " write to RocksDB"
            )

    @field_validator("*")
    @classmethod
    def _check_java_int(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse integers that do not fit into a Java ``int``: RocketMQ cannot read them."""
        if type(value) is int and value > INT_MAX and info.field_name not in _OWN_SIZES:
            raise ValueError(f"{value:.6g} exceeds the maximum of a Java int, {INT_MAX}")
        return value

    @field_validator("ab_shares")
    @classmethod
    def _check_shares(cls, value: str | None) -> str | None:
        for topics, share in classes_of(value):
            if not (topics and is_share(share)):
                raise ValueError(
                    f"invalid entry {topics}={share}: expected topics=share, with a share from 0 to"
                    " 1"
                )
        return value

    @field_validator("read_topics")
    @classmethod
    def _check_read_topics(cls, value: str | None) -> str | None:
        known = installed()
        for topics, name in classes_of(value):
            if not topics or name not in known:
                raise ValueError(
                    f"invalid entry {topics}={name}: expected topics=backend, with a backend of"
                    f" {', '.join(known)}"
                )
        return value

    @field_validator("multi_path_splitter")
    @classmethod
    def _check_splitter(cls, value: str) -> str:
        if not value or not _NO_SEPARATOR.isdisjoint(value):  # Java splits at a regular expression
            raise ValueError(f"invalid separator {value!r}: expected a text such as , or :")
        return value

    @field_validator("delete_when")
    @classmethod
    def _check_hours(cls, value: str) -> str:
        hours = [hour.strip() for hour in value.split(";") if hour.strip()]
        if not all(hour.isdecimal() and int(hour) < _HOURS for hour in hours):
            raise ValueError(f"invalid list of hours {value!r}: expected hours such as 04;16")
        return value

    @property
    def loaded_backends(self) -> list[str]:
        """Return the backends that double write loads, sorted by name."""
        return backends_of(self.combine_cq_loading_cq_types)

    @property
    def preferred_backend(self) -> str:
        """Return the backend that serves reads under double write."""
        return backends_of(self.combine_cq_prefer_cq_type)[0]

    @property
    def assigning_backend(self) -> str | None:
        """Return the backend that queue offsets are taken from; ``None``: the preferred one."""
        given = self.combine_assign_offset_cq_type
        return None if given is None else backends_of(given)[0]

    @property
    def double_write_selection(self) -> str | None:
        """Return the topics written to RocksDB, sorted, joined by semicolons; ``None``: all."""
        if not self.rocksdb_cq_selective_double_write_enable:
            return None
        names = {name.strip() for name in (self.double_write_topics or "").split(";")}
        return ";".join(sorted(names - {""}))

    @property
    def ab_share_classes(self) -> list[tuple[str, float]]:
        """Return the topic classes of ``ab_shares`` with their shares, in order."""
        return [(topics, float(share)) for topics, share in classes_of(self.ab_shares)]

    @property
    def read_topic_classes(self) -> list[tuple[str, str]]:
        """Return the topic classes of ``read_topics`` with their backends, in order."""
        return list(classes_of(self.read_topics))

    @property
    def syncs_each_put(self) -> bool:
        """Return whether a put is acknowledged only after it is on disk (``SYNC_FLUSH``)."""
        return self.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def is_transient(self) -> bool:
        """Return whether records are buffered in memory first; never with ``SYNC_FLUSH``."""
        return (
            self.transient_store_pool_enable and self.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        )

    @property
    def delete_hours(self) -> frozenset[int]:
        """Return the hours of ``delete_when``."""
        return frozenset(int(hour) for hour in self.delete_when.split(";") if hour.strip())

    @property
    def spreads_log(self) -> bool:
        """Return whether ``store_path_commit_log`` names several folders."""
        return self.multi_path_splitter in (self.store_path_commit_log or "")

    @property
    def units_per_file(self) -> int:
        """Return how many 20-byte units one queue file holds."""
        return -(-self.mapped_file_size_consume_queue // CQ_UNIT_SIZE)

    @property
    def replays_lmq(self) -> bool:
        """Return whether a record that carries light-queue offsets is dispatched to them.

        A record has such offsets only if a store with ``enableLmq`` wrote it, so they are trusted
        unless the setting was explicitly turned off.
        """
        return self.enable_lmq or "enable_lmq" not in self.model_fields_set
