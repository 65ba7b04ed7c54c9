"""The installed backends, and RocketMQ's values for them in its configuration.

Backends are found by entry point, so that nothing here names one: each says on its class what
RocketMQ calls it, and what its settings may do with it.
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
    """What settings may ask of a backend; the base of ``ConsumeQueueStore``."""

    name: ClassVar[str]
    """The entry point's name, also what ``--backend`` takes."""
    store_types: ClassVar[tuple[str, ...]] = ()
    """RocketMQ's words for it in ``storeType``, whatever their case; none: its name.

    The first one is written, and it alone counts in lists such as ``combineCQLoadingCQTypes``.
    """
    honours_double_write: ClassVar[bool] = False
    """With its ``storeType`` the setting ``rocksdbCQDoubleWriteEnable`` counts."""
    takes_a_share: ClassVar[bool] = False
    """Under double write it may hold light queues alone, or only the topics it is given.

    ``combineCQUseRocksdbForLmq`` and ``rocksdbCQSelectiveDoubleWriteEnable`` speak of it.
    """

    @classmethod
    def words(cls) -> list[str]:
        """Return the words for it, the one that is written first."""
        return list(cls.store_types) or [cls.name]

    @classmethod
    def store_type(cls) -> str:
        """Return the word that is written."""
        return cls.words()[0]


def backend_names() -> list[str]:
    """Return the names of the installed backends, sorted; nothing of them is imported."""
    return [entry.name for entry in entries(_GROUP)]


def installed() -> Mapping[str, type[Backend]]:
    """Return name → class of every installed backend, sorted by name.

    Raises:
        StoreConfigError: an entry point leads to no backend of that name, or two backends have one
            word.
    """
    return _installed(tuple(sys.path))


@lru_cache(1)
def _installed(_path: tuple[str, ...]) -> Mapping[str, type[Backend]]:
    """Return name → backend; looked up anew only when ``sys.path`` has changed."""
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
    """Return the backends that RocketMQ's words name, sorted; other words are passed over."""
    words = {word.strip().lower() for word in types.split(";")}
    return [name for name, kind in installed().items() if kind.store_type().lower() in words]


def backend_of_type(store_type: str) -> type[Backend] | None:
    """Return the backend of a ``storeType``; ``None``: none has that word."""
    for kind in installed().values():
        if store_type.lower() in map(str.lower, kind.words()):
            return kind
    return None


def known_types() -> str:
    """Return the values of ``storeType`` for the installed backends, for an error."""
    return " or ".join(kind.store_type() for kind in installed().values())


def taking_a_share(names: Iterable[str]) -> str | None:
    """Return the one of these backends that takes a share, see ``Backend.takes_a_share``."""
    kept = set(names)
    sharing = (name for name, kind in installed().items() if kind.takes_a_share)
    return next((name for name in sharing if name in kept), None)
