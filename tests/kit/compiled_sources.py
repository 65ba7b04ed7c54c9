"""What compiled modules are made of, and what they name, as their text says it."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from tests.kit.pages import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
MODULES: list[dict[str, Any]] = PROJECT["setuptools"]["ext-modules"]
LAYERS = [
    [package.strip() for package in layer.split("|")]
    for layer in PROJECT["importlinter"]["contracts"][0]["layers"]
]
"""The packages, the highest first; those of one layer do not see each other."""
ROOMS = [
    (container, [[room.strip() for room in layer.split("|")] for layer in contract["layers"]])
    for contract in PROJECT["importlinter"]["contracts"]
    for container in contract.get("containers", ())
]
"""Packages whose rooms have an order, each with its rooms, the highest first."""
SUFFIXES = {".pyx", ".pxi", ".pxd", ".pyi"}
_FROM = re.compile(
    r"^[ \t]*from[ \t]+([\w.]+)[ \t]+c?import[ \t]+(?:\(([^)]*)\)|([^#\n;]+))", re.MULTILINE
)
_IMPORT = re.compile(r"^[ \t]*c?import[ \t]+([^#\n;]+)", re.MULTILINE)
_DECLARED = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+cimport|cimport[ \t]+([\w.]+))\b", re.MULTILINE
)
_TEXT = re.compile(
    r'^[ \t]*(?:include|cdef extern from|#[ \t]*include)[ \t]+"([^"]+)"', re.MULTILINE
)


def lower(package: str) -> set[str]:
    """Return the packages that ``package`` may know of, itself among them."""
    at = next(number for number, layer in enumerate(LAYERS) if package in layer)
    return {package, *(below for layer in LAYERS[at + 1 :] for below in layer)}


def sources() -> list[Path]:
    """Return all files of compiled code and their stubs, relative to the project."""
    found = (path for layer in LAYERS for top in layer for path in (ROOT / top).rglob("_*.p*"))
    return sorted(path.relative_to(ROOT) for path in found if path.suffix in SUFFIXES)


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
    return found | {
        ".".join(_place(source, name).with_suffix("").parts) for name in _TEXT.findall(text)
    }


def packages_of(source: Path, text: str) -> set[str]:
    """Return the packages of the project that a source names."""
    tops = {name.split(".")[0] for name in named_by(source, text)}
    return {top for top in tops if top and (ROOT / top / "__init__.py").is_file()}


def unseen(source: Path, text: str) -> set[str]:
    """Return what a source names of rooms that its own room must not see."""
    found = set()
    for container, layers in ROOMS:
        level = {room: number for number, layer in enumerate(layers) for room in layer}
        room = _room(source.with_suffix("").parts, container)
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
    folders = source.parent.parts
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


def made_of(module: dict[str, Any]) -> set[str]:
    """Return the files that a compiled module is made of."""
    found: set[Path] = set()
    ahead = {ROOT / name for name in module["sources"]}
    while ahead:
        path = ahead.pop()
        found.add(path)
        text = path.read_text("utf-8")
        names = _TEXT.findall(text)
        names += [path.with_suffix(".pxd").name] if path.suffix == ".pyx" else []
        modules = map("".join, _DECLARED.findall(text))
        names += [module.replace(".", "/") + ".pxd" for module in modules]
        folders = [path.parent, ROOT, *(ROOT / name for name in module.get("include-dirs", ()))]
        for name in names:
            places = (folder / name for folder in folders if (folder / name).is_file())
            ahead |= {*places} - found
    return {str(path.relative_to(ROOT)) for path in found}
