"""A RocketMQ-compatible message store: the public names, which do not change between releases.

The packages below this one are how the store is built; their contents may change with any release.

A name is imported when it is first used, so ``import cqstore`` alone costs nothing.
"""

from importlib import import_module

from cqstore.store.lazy_names import lazy_names

__all__, _get, _names = lazy_names(globals())
__all__.remove("open")  # ``import *`` leaves ``open`` as it is


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name == "__version__":
        return import_module("importlib.metadata").version("cqstore")
    return _get(name)


def __dir__() -> list[str]:
    return [*_names(), "open", "__version__"]
