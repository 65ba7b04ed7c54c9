"""Distributions that are installed for one test, in this process and in those that it starts."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LMDB = ROOT / "cq_lmdb"


def install_distribution(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    points: Mapping[str, Mapping[str, str]],
) -> None:
    """Install the entry points of ``points``, by group and name, from an empty ``folder``."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, entries in points.items():
        lines += [f"[{group}]", *[f"{entry} = {place}" for entry, place in entries.items()]]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
    monkeypatch.syspath_prepend(folder)
    found = [str(folder), str(ROOT), str(LMDB), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(found))


def install_lmdb(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the LMDB backend as its own ``pyproject.toml`` does."""
    project = tomllib.loads((LMDB / "pyproject.toml").read_text())["project"]
    install_distribution(folder, monkeypatch, project["name"], project["entry-points"])
