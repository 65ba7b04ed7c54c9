"""Sides: parses ``--side`` into backend and settings.

A side is the entry point's name of a backend, or its plural, followed by settings separated by
commas: settings of the store in either spelling, also without the backend's name before them, and
the backend's own options. This module contains no name of a backend.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from cqstore.ab.results.result import Footprint, Side
from cqstore.store.errors import StoreConfigError
from cqstore.store.queue.backends import backend, backend_names
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.replica_config import BrokerRole

_DECIDED = frozenset({
    "store_type", "rocksdb_cq_double_write_enable", "combine_cq_loading_cq_types",
    "combine_cq_prefer_cq_type", "combine_assign_offset_cq_type",
    "combine_cq_use_rocksdb_for_lmq", "rocksdb_cq_selective_double_write_enable",
    "double_write_topics", "store_path_commit_log", "read_only_commit_log_store_paths",
    "multi_path_splitter", "store_path_root_dir", "enable_dledger_commit_log",
    "enable_controller_mode", "broker_role", "duplication_enable", "message_index_enable",
})  # fmt: skip
"""Settings for the place, content and writer of a store: the comparison sets them."""


@dataclass(frozen=True, slots=True)
class SideSpec:
    """One side as given by the user."""

    name: str
    given: str
    backend: str
    config: StoreConfig
    options: dict[str, str]
    """Given settings of the side."""
    twin_of: str | None = None

    def described(
        self, log_shared_by: str, build_seconds: float = 0.0, footprint: Footprint | None = None
    ) -> Side:
        """Return the description of this side in a result; see the fields of ``Side``."""
        return Side(
            name=self.name, given=self.given, backend=self.backend, options=self.options,
            twin_of=self.twin_of, log_shared_by=log_shared_by, build_seconds=build_seconds,
            footprint=footprint,
        )  # fmt: skip


def parse_sides(given: Sequence[str], base: StoreConfig) -> list[SideSpec]:
    """Return the sides with unique names, the reference first, and its twin last.

    Raises:
        StoreConfigError: there are fewer than two sides, or a side is invalid.
        UnsupportedFormatError: a side needs something that does not work on this machine.
    """
    if len(given) < 2:  # noqa: PLR2004 - that is what a comparison is
        raise StoreConfigError(f"a comparison needs at least 2 sides, found {len(given)} (--side)")
    settings = _separate_settings(base)
    sides = [_parse(text, settings) for text in given]
    names = Counter[str]()
    for at, side in enumerate(sides):
        names[side.name] += 1
        if names[side.name] > 1:
            sides[at] = replace(side, name=f"{side.name} ({names[side.name]})")
    first = sides[0]
    return [*sides, replace(first, name=f"{first.name} (twin)", twin_of=first.name)]


def default_sides(first: str | None) -> list[str]:
    """Return all installed backends, with ``first`` at the front if it is one of them."""
    names = backend_names()
    return sorted(names, key=lambda name: (name != first, name))


def _separate_settings(base: StoreConfig) -> StoreConfig:
    """Return the settings of a separate store, with one backend and no replicas."""
    given = {
        name: value
        for name, value in base.without_replicas().model_dump(exclude_unset=True).items()
        if name not in _DECIDED
    }
    return StoreConfig(**given, message_index_enable=False, broker_role=BrokerRole.ASYNC_MASTER)


def _parse(text: str, base: StoreConfig) -> SideSpec:
    """Return the side that ``backend,setting=value,…`` describes.

    Raises:
        StoreConfigError: the text is not a valid side.
    """
    word, *pairs = (part.strip() for part in text.split(","))
    name = _backend(word)
    values: dict[str, Any] = {}
    own: list[str] = []
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals and value):
            raise StoreConfigError(f"side {text!r}: invalid {pair!r}: expected SETTING=VALUE")
        field = _field(name, key)
        if field is None:
            own.append(f"{key}={value}")
        elif field in _DECIDED:
            raise StoreConfigError(f"side {text!r}: {key} cannot be set for a side")
        elif field in values:
            raise StoreConfigError(f"side {text!r}: {key} is set twice")
        else:
            values[field] = value
    if own:
        values[_own_options(text, name, own, values)] = ";".join(own)
    try:
        config = StoreConfig.from_mapping(base.model_dump(exclude_unset=True) | values)
        backend(name).check_settings(config)
    except StoreConfigError as exc:
        raise StoreConfigError(f"side {text!r}: {exc.reason}") from exc
    options = dict(pair.replace(" ", "").split("=", 1) for pair in pairs)
    return SideSpec(", ".join([word, *pairs]), text, name, config, options)


def _backend(word: str) -> str:
    names = backend_names()
    for name in names:
        if word in {name, f"{name}s"}:
            return name
    close = get_close_matches(word, names, 1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    raise StoreConfigError(f"no backend {word!r}{meant}; installed: {', '.join(names)}")


def _field(name: str, key: str) -> str | None:
    """Return the setting for ``key``, which may omit the backend's name."""
    fields = StoreConfig.model_fields
    for field in (key, f"{name}_{key}", StoreConfig.known_keys().get(key)):
        if field in fields:
            return field
    return None


def _own_options(text: str, name: str, own: list[str], values: dict[str, Any]) -> str:
    """Return the setting that takes a backend's own options."""
    field = f"{name}_options"
    if field not in StoreConfig.model_fields:
        key = own[0].partition("=")[0]
        close = get_close_matches(key, [*StoreConfig.known_keys(), *StoreConfig.model_fields], 1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        raise StoreConfigError(f"side {text!r}: no setting {key!r}{meant}")
    if field in values:
        raise StoreConfigError(
            f"side {text!r}: {own[0]!r} cannot be combined with {field}: add it there"
        )
    return field
