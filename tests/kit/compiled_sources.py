"""What compiled modules are made of, and what they name, as their text says it."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from tests.kit.product_tree import LINKED, ROOT, module_name, product_files

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
ROOMS = [
    (container, [[room.strip() for room in layer.split("|")] for layer in contract["layers"]])
    for contract in PROJECT["importlinter"]["contracts"]
    for container in contract.get("containers", ())
]
"""Packages whose rooms have an order, each with its rooms, the highest first."""
NOT_IMPORTED = {*LINKED, "tests", "tools"}
SUFFIXES = {".pyx", ".pxi", ".pxd", ".pyi"}
_FROM = re.compile(
    r"^[ \t]*from[ \t]+([\w.]+)[ \t]+c?import[ \t]+(?:\(([^)]*)\)|([^#\n;]+))", re.MULTILINE
)
_IMPORT = re.compile(r"^[ \t]*c?import[ \t]+([^#\n;]+)", re.MULTILINE)
_TEXT = re.compile(
    r'^[ \t]*(?:include|cdef extern from|#[ \t]*include)[ \t]+"([^"]+)"', re.MULTILINE
)


def sources() -> list[Path]:
    """Return all files of compiled code and their stubs, relative to the project."""
    return [path for path in product_files(*SUFFIXES) if path.name.startswith("_")]


def modules() -> list[Path]:
    """Return the sources of the compiled modules, relative to the project."""
    return [path for path in sources() if path.suffix == ".pyx"]


def named_by(source: Path, text: str) -> set[str]:
    """Return what a source imports, cimports or includes: dotted names, of modules or in them."""
    found: set[str] = set()
    for module, *names in _FROM.findall(text):
        whole = _absolute(source, module)
        found |= {
            whole,
            *(f"{whole}.{name.split()[0]}" for name in "".join(names).split(",") if name.strip()),
        }
    for names in _IMPORT.findall(text):
        found |= {name.split()[0] for name in names.split(",")}
    return found | {module_name(_place(source, name)) for name in _TEXT.findall(text)}


def unseen(source: Path, text: str) -> set[str]:
    """Return what a source names of rooms that its own room must not see, or by a bare name."""
    found = {name for name in named_by(source, text) if name.split(".")[0] in NOT_IMPORTED}
    for container, layers in ROOMS:
        level = {room: number for number, layer in enumerate(layers) for room in layer}
        room = _room(tuple(module_name(source).split(".")), container)
        for name in named_by(source, text):
            other = _room(tuple(name.split(".")), container)
            if room in level and other in level and other != room and level[other] <= level[room]:
                found.add(name)
    return found


def _room(name: tuple[str, ...], container: str) -> str:
    """Return the room of ``container`` that a module is in; empty: it is elsewhere."""
    above = tuple(container.split("."))
    return name[len(above)] if name[: len(above)] == above and len(name) > len(above) else ""


def _absolute(source: Path, module: str) -> str:
    dots = len(module) - len(module.lstrip("."))
    folders = module_name(source.parent).split(".")
    return (
        ".".join([*folders[: len(folders) + 1 - dots], module[dots:]]).strip(".")
        if dots
        else module
    )


def _place(source: Path, name: str) -> Path:
    """Return where an included text lies: beside the source, or at the top."""
    beside = Path(os.path.normpath(source.parent / name))
    is_beside = name.startswith(".") or (ROOT / beside).exists()
    return beside if is_beside else Path(name)
