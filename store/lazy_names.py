"""Names that a package exports, each imported when it is first used.

The ``__init__.pyi`` of such a package has the types of the names; a test compares the two lists.
"""

from collections.abc import Callable, Mapping
from importlib import import_module


def places(names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return public name → module and name there.

    ``names``: module → public names, or ``public=name`` where the module uses another name.
    """
    return {
        public: (module, name or public)
        for module, listed in names.items()
        for public, _, name in (each.partition("=") for each in listed.split())
    }


def lazy_names(
    package: str, names: Mapping[str, str], namespace: dict[str, object]
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of ``package``, see ``places``.

    Imported names are stored in ``namespace``, the globals of the package.
    """
    known = places(names)
    public = sorted(known)

    def get(name: str) -> object:
        if name not in known:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = known[name]
        found: object = getattr(import_module(module), attribute)
        namespace[name] = found
        return found

    return public, get, lambda: [*public]
