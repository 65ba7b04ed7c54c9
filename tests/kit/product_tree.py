"""The product's files: where each lies, and under which name it is imported."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINKED = ("store", "cq_file", "cq_rocksdb", "migration")
"""Folders at the top of the tree; ``cqstore`` has a link to each."""
BESIDE = ("cq_lmdb",)
"""Folders of distributions of their own, which are not in the wheel of ``cqstore``."""
PRODUCT = ("cqstore", *LINKED)
"""Folders that are installed, each file in one of them (links are not followed)."""


def product_files(*suffixes: str) -> Iterator[Path]:
    """Yield the product's files with these suffixes, relative to the top, sorted."""
    for folder in PRODUCT:
        found = (ROOT / folder).rglob("*")
        yield from sorted(path.relative_to(ROOT) for path in found if path.suffix in suffixes)


def module_name(path: Path) -> str:
    """Return the dotted name of a file relative to the top; of a package, that of its folder."""
    parts = path.with_suffix("").parts
    inner = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(("cqstore", *inner) if inner[0] in LINKED else inner)
