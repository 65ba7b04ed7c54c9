"""The installed backends, and the values by which RocketMQ's configuration names them.

Backends are found by entry point, so this module names none of them. Class attributes of each
backend define its RocketMQ names and the settings that apply to it.
"""

import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import ClassVar

from cqstore.store.entry_points import entries
from cqstore.store.errors import StoreConfigError
from cqstore.store.whole_import import load_whole

_GROUP = "cqstore.backends"


class Backend:
    """Properties of a backend that settings depend on; base class of ``ConsumeQueueStore``."""

    name: ClassVar[str]
    """The entry point's name, which is also the value of ``--backend``."""
    store_types: ClassVar[tuple[str, ...]] = ()
    """RocketMQ's values of ``storeType`` for this backend, in any case; empty: its name.

    The first is the one that is written; only it is valid in lists such as
    ``combineCQLoadingCQTypes``.
    """
    honours_double_write: ClassVar[bool] = False
    """Whether ``rocksdbCQDoubleWriteEnable`` has an effect with its ``storeType``."""
    takes_a_share: ClassVar[bool] = False
    """Whether, under double write, it may hold only light queues or only selected topics.

    ``combineCQUseRocksdbForLmq`` and ``rocksdbCQSelectiveDoubleWriteEnable`` apply to it.
    """

    @classmethod
    def words(cls) -> list[str]:
        """Return its ``storeType`` values; the first is the one that is written."""
        return list(cls.store_types) or [cls.name]

    @classmethod
    def store_type(cls) -> str:
        """Return the ``storeType`` value that is written."""
        return cls.words()[0]


def backend_names() -> list[str]:
    """Return the names of the installed backends, sorted, without importing them."""
    return [entry.name for entry in entries(_GROUP)]


def installed() -> Mapping[str, type[Backend]]:
    """Return name → class of every installed backend, sorted by name.

    Raises:
        StoreConfigError: an entry point is not a backend of that name, or two backends have the
            same ``storeType`` value.
    """
    return _installed(tuple(sys.path))


@lru_cache(1)
def _installed(_path: tuple[str, ...]) -> Mapping[str, type[Backend]]:
    """Return name → backend; repeat the lookup only if ``sys.path`` has changed."""
    found: dict[str, type[Backend]] = {}
    named: dict[str, str] = {}
    for entry in entries(_GROUP):
        loaded = load_whole(entry)
        if not (isinstance(loaded, type) and issubclass(loaded, Backend)):
            raise StoreConfigError(f"backend {entry.name!r} ({entry.value}) is not a Backend class")
        if loaded.name != entry.name:
            raise StoreConfigError(
                f"backend {entry.name!r} ({entry.value}) has another name, {loaded.name!r}"
            )
        for word in map(str.lower, loaded.words()):
            if word in named:
                both = f"{named[word]!r} and {entry.name!r}"
                raise StoreConfigError(f"backends {both} both use the name {word!r}")
            named[word] = entry.name
        found[entry.name] = loaded
    return found


def backends_of(types: str) -> list[str]:
    """Return the backends named in a list of RocketMQ's types, sorted; ignore other words."""
    words = {word.strip().lower() for word in types.split(";")}
    return [name for name, kind in installed().items() if kind.store_type().lower() in words]


def backend_of_type(store_type: str) -> type[Backend] | None:
    """Return the backend of a ``storeType``; ``None`` if no backend has that value."""
    for kind in installed().values():
        if store_type.lower() in map(str.lower, kind.words()):
            return kind
    return None


def known_types() -> str:
    """Return the ``storeType`` values of the installed backends, for an error message."""
    return " or ".join(kind.store_type() for kind in installed().values())


def taking_a_share(names: Iterable[str]) -> str | None:
    """Return the first of these backends with ``Backend.takes_a_share``; ``None`` if none."""
    kept = set(names)
    sharing = (name for name, kind in installed().items() if kind.takes_a_share)
    return next((name for name in sharing if name in kept), None)
