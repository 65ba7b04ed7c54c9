"""The compiled core: what takes its Python twin's place where it was built and nobody forbids it.

A call does the plain case wholly, or hands it back untouched. So the twins are the specification,
and without a compiler everything works, slower. ``CQSTORE_CORE=0`` leaves the core out, ``1``
refuses to start without it.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

SWITCH = "CQSTORE_CORE"


def _load() -> "tuple[ModuleType | None, ModuleType | None, str]":
    wanted = os.environ.get(SWITCH, "")
    if wanted not in {"", "0", "1"}:
        raise ImportError(f"{SWITCH} is {wanted!r}: it can be 0, 1, or not set")
    if wanted == "0":
        return None, None, f"interpreted, for {SWITCH} is 0"
    try:
        from store.core import _core, _reads  # noqa: PLC0415 - they may not have been built
    except ImportError as exc:
        if wanted:
            raise ImportError(f"{SWITCH} is 1, but the core was not built: {exc}") from exc
        return None, None, "interpreted, for the core was not built (there was no C compiler)"
    return _core, _reads, "compiled"


def beside(name: str) -> "ModuleType | None":
    """Return the compiled module ``name`` of a package above, which stands on the core.

    ``None``: its twins run, as they do where the core does not.

    Raises:
        ImportError: the switch demands it, and it was not built.
    """
    if CORE is None:
        return None
    try:
        return import_module(name)
    except ImportError as exc:
        if os.environ.get(SWITCH):
            raise ImportError(f"{SWITCH} is 1, but {name} was not built: {exc}") from exc
        return None


_loaded = _load()
CORE: Final = _loaded[0]
"""The compiled module, ``None`` where the twins run."""
READS: Final = _loaded[1]
"""Its reading side, likewise."""
WHICH: Final = _loaded[2]
"""Which of them run, and why."""
