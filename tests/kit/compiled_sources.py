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
SUFFIXES = {".pyx", ".pxi", ".pxd", ".pyi"}
_FROM = re.compile(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+c?import\b", re.MULTILINE)
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


def packages_of(source: Path, text: str) -> set[str]:
    """Return the packages of the project that a source imports, cimports or includes."""
    modules = _FROM.findall(text)
    for names in _IMPORT.findall(text):
        modules += [name.split()[0] for name in names.split(",")]
    tops = {module.split(".")[0] for module in modules if not module.startswith(".")}
    tops |= {_folder(source, name) for name in _TEXT.findall(text)}
    return {top for top in tops if top and (ROOT / top / "__init__.py").is_file()}


def _folder(source: Path, name: str) -> str:
    """Return the first folder of an included text, which lies beside the source or at the top."""
    beside = Path(os.path.normpath(source.parent / name))
    is_beside = name.startswith(".") or (ROOT / beside).exists()
    return (beside if is_beside else Path(name)).parts[0]


def made_of(module: dict[str, Any]) -> set[str]:
    """Return the files that a compiled module is made of."""
    found: set[Path] = set()
    ahead = {ROOT / name for name in module["sources"]}
    while ahead:
        path = ahead.pop()
        found.add(path)
        text = path.read_text("utf-8")
        names = [*_TEXT.findall(text), path.with_suffix(".pxd").name]
        modules = map("".join, _DECLARED.findall(text))
        names += [module.replace(".", "/") + ".pxd" for module in modules]
        folders = [path.parent, ROOT, *(ROOT / name for name in module.get("include-dirs", ()))]
        for name in names:
            places = (folder / name for folder in folders if (folder / name).is_file())
            ahead |= {*places} - found
    return {str(path.relative_to(ROOT)) for path in found}
