"""The development environment is the same everywhere: a version for each package it needs."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.kit.product_tree import ROOT

LINES = (ROOT / "tools" / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINS = [line for line in LINES if not line.startswith("#")]


def test_a_line_is_a_name_and_a_version() -> None:
    assert [line for line in PINS if not re.fullmatch(r"[a-z0-9._-]+==[\w.]+", line)] == []
    assert sorted(PINS) == sorted({*PINS})


def test_each_requirement_of_the_project_has_a_version_that_it_allows() -> None:
    """After a change of ``pyproject.toml`` that this refuses: ``make constraints``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *extras["dev"], *extras["docs"], "setuptools", "cython"]
    needed = [Requirement(text) for text in texts if not text.startswith("cqstore")]
    pins = dict(line.split("==") for line in PINS)
    versions = {canonicalize_name(name): version for name, version in pins.items()}
    refused = [
        str(each)
        for each in needed
        if not each.specifier.contains(versions.get(canonicalize_name(each.name), "0.dev0"))
    ]
    assert refused == []
