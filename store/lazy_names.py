"""Names that a package exports, each imported when it is first used.

The stub of the package, ``__init__.pyi``, is the list of the names, with their modules.
"""

import os
from collections.abc import Callable
from importlib import import_module

_PUNCTUATION = str.maketrans("(),", "   ")


def places(stub: str) -> dict[str, tuple[str, str]]:
    """Return public name → module and name there, from the text of a stub.

    Each statement is ``from MODULE import NAME as PUBLIC``, or ``PUBLIC = _NAME`` where the module
    uses another name.
    """
    words = stub.translate(_PUNCTUATION).split()
    found: dict[str, tuple[str, str]] = {}
    for at, word in enumerate(words):
        if word == "from":
            found[words[at + 5]] = (words[at + 1], words[at + 3])
        elif word == "=":
            found[words[at - 1]] = found.pop(words[at + 1])
    return found


def lazy_names(
    namespace: dict[str, object],
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of the package with these globals.

    Imported names are stored in ``namespace``.
    """
    folder = os.path.dirname(str(namespace["__file__"]))  # noqa: PTH120 - a slower import
    with open(f"{folder}/__init__.pyi", encoding="utf-8") as stub:  # noqa: PTH123
        known = places(stub.read())
    public = sorted(known)

    def get(name: str) -> object:
        if name not in known:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        module, attribute = known[name]
        found: object = getattr(import_module(module), attribute)
        namespace[name] = found
        return found

    return public, get, lambda: [*public]
