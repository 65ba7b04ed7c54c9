"""Tuning: options that an operator overrides, by RocketMQ's keys or by RocksDB's own names.

The setting ``rocksdb_options`` is text such as ``block_size=4096;compression=lz4``, for the family
with the units; it overrides RocketMQ's keys. Existing files remain readable with any options.

Source: RocketMQ ``RocksDBOptionsFactory.createCQCFOptions``.
"""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from cqstore.cq_rocksdb.engine.database_options import (
    Compression,
    DatabaseOptions,
    database_options,
)
from cqstore.cq_rocksdb.engine.rocks_engine import Family
from cqstore.store.errors import StoreConfigError
from cqstore.store.settings.config import StoreConfig


def options_of(config: StoreConfig) -> DatabaseOptions:
    """Return the options of a store's database: RocketMQ's keys, then ``rocksdb_options``.

    Raises:
        StoreConfigError: an option of ``rocksdb_options`` is unknown or has an invalid value.
    """
    options = database_options(config.rocksdb_memory_bytes)
    units = options.families[Family.DEFAULT]._replace(
        compression=_of_rocketmq(config.rocksdb_compression_type),
        bottommost_compression=_of_rocketmq(
            config.bottom_most_compression_type_for_consume_queue_store
        ),
        universal_max_size_amplification=config.rocksdb_max_size_amplification_percent,
    )
    options = options._replace(
        families={**options.families, Family.DEFAULT: units},
        stats_dump_seconds=config.stat_rocksdb_cq_interval_sec or options.stats_dump_seconds,
    )
    return tuned(options, config.rocksdb_options)


def _of_rocketmq(name: str) -> Compression:
    return Compression.ZLIB if name == "z" else Compression(name)


def tuned(options: DatabaseOptions, text: str | None) -> DatabaseOptions:
    """Return ``options`` with the options of ``text`` applied.

    Raises:
        StoreConfigError: an option is unknown, given twice, or has an invalid value.
    """
    of_units: dict[str, Any] = {}
    of_database: dict[str, Any] = {}
    for part in filter(None, (each.strip() for each in (text or "").split(";"))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            raise StoreConfigError(f"rocksdbOptions: invalid option {part!r}: expected name=value")
        place = of_database if name in _OF_DATABASE else of_units
        field, read = _option(name)
        if field in place:
            raise StoreConfigError(f"rocksdbOptions: {name} is given twice")
        place[field] = _read(name, value, read)
    units = options.families[Family.DEFAULT]._replace(**of_units)
    families = {**options.families, Family.DEFAULT: units}
    return options._replace(families=families, **of_database)


def _option(name: str) -> tuple[str, Callable[[str], object]]:
    """Return an option's field and the function that parses its value.

    Raises:
        StoreConfigError: the option is unknown.
    """
    found = {**_OF_UNITS, **_OF_DATABASE}.get(name)
    if found is None:
        close = get_close_matches(name, [*_OF_UNITS, *_OF_DATABASE], 1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        known = ", ".join(sorted([*_OF_UNITS, *_OF_DATABASE]))
        raise StoreConfigError(f"rocksdbOptions: unknown option {name!r}{meant}: expected {known}")
    return found


def _read(name: str, value: str, read: Callable[[str], object]) -> object:
    try:
        return read(value)
    except ValueError as exc:
        raise StoreConfigError(f"rocksdbOptions: {name}: {exc}") from exc


def _number(minimum: int, limit: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or not minimum <= int(text) <= limit:
            raise ValueError(f"invalid value {text!r}: expected a number from {minimum} to {limit}")
        return int(text)

    return read


def _compression(text: str) -> Compression:
    known = [each.value for each in Compression]
    if text not in known:
        raise ValueError(f"invalid value {text!r}: expected one of {', '.join(known)}")
    return Compression(text)


def _flag(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(f"invalid value {text!r}: expected true or false")
    return text == "true"


def _is_universal(text: str) -> bool:
    if text not in {"universal", "level"}:
        raise ValueError(f"invalid value {text!r}: expected universal or level")
    return text == "universal"


_MAX_BYTES = 1 << 40
_OF_UNITS: dict[str, tuple[str, Callable[[str], object]]] = {
    "block_size": ("block_bytes", _number(1 << 10, 16 << 20)),
    "bloom_bits_per_key": ("bloom_bits_per_key", _number(1, 64)),
    "bottommost_compression": ("bottommost_compression", _compression),
    "compaction_style": ("universal_compaction", _is_universal),
    "compression": ("compression", _compression),
    "hash_index": ("hash_index", _flag),
    "max_bytes_for_level_base": ("max_bytes_for_level_base", _number(1 << 20, _MAX_BYTES)),
    "max_write_buffer_number": ("write_buffers", _number(2, 64)),
    "optimize_filters_for_hits": ("optimize_filters_for_hits", _flag),
    "target_file_size_base": ("target_file_bytes", _number(1 << 20, _MAX_BYTES)),
    "write_buffer_size": ("write_buffer_bytes", _number(64 << 10, 1 << 32)),
}
"""RocksDB's name → field of ``FamilyOptions``, and the parser of its value."""
_OF_DATABASE: dict[str, tuple[str, Callable[[str], object]]] = {
    "block_cache_size": ("block_cache_bytes", _number(1 << 20, _MAX_BYTES)),
    "max_background_jobs": ("max_background_jobs", _number(1, 64)),
    "rate_limit_bytes_per_second": ("rate_limit_bytes_per_second", _number(1 << 20, 1 << 40)),
}
"""RocksDB's name → field of ``DatabaseOptions``, and the parser of its value."""
