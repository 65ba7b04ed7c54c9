"""Compiled code keeps to the layers too, which `lint-imports` cannot see: it reads Python alone."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.kit.compiled_sources import (
    MODULES,
    lower,
    made_of,
    packages_of,
    sources,
    unseen,
)
from tests.kit.pages import ROOT

OFFSET_OF_FIELD = re.compile(r"structmember|PyMember\w*|offsetof|dictoffset")
"""How C finds a field of a class of Python: compiled code has the fields in classes of its own."""


def broken(source: Path, text: str) -> list[str]:
    """Return what a source names that its package or its room may not know of."""
    above = packages_of(source, text) - lower(source.parts[0])
    return [f"{source}: {name}" for name in [*sorted(above), *sorted(unseen(source, text))]]


@pytest.mark.parametrize("source", sources(), ids=str)
def test_compiled_code_names_only_what_its_layer_may_know(source: Path) -> None:
    text = (ROOT / source).read_text("utf-8")
    assert broken(source, text) == []


def test_none_is_passed_over() -> None:
    parts = {Path(name) for module in MODULES for name in made_of(module)}
    assert {part for part in parts if part.suffix != ".h"} <= {*sources()}


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("store/core/_x.pyx", "from cq_file._units cimport FileUnits"),
        ("store/core/_x.pyx", "    from cq_file.layout import FILE_UNIT"),
        ("store/core/_x.pyx", "cimport cython, cq_file._units as units"),
        ("store/core/_x.pyi", "import os, migration.status"),
        ("store/core/_x.pyx", 'include "../../cq_file/_units.pyx"'),
        ("store/core/_x.pxi", 'include "cq_file/_units.pyx"'),
        ("store/core/_x.pxd", 'cdef extern from "../../cq_file/_units.h":'),
        ("store/core/_x.pxi", '#include "cq_file/_units.h"'),
        ("cq_file/_x.pyx", "from cq_rocksdb import keys"),
        ("cq_rocksdb/_x.pyx", "from cq_file._units cimport FileUnits"),
        ("cq_file/_x.pyx", "from tests.kit import pages"),
        ("store/core/_x.pyx", "from store.log._tail cimport LogTail"),
        ("store/log/_x.pyx", "from store.queue._batch cimport UnitColumns"),
        ("store/record/_x.pxd", "    from store.log cimport _tail"),
        ("store/record/_x.pyx", "from store cimport (\n    core, log,\n)"),
        ("store/record/_x.pyx", 'include "../log/_tail.pxd"'),
        ("store/queue/_x.pyx", "cimport cython, store.index._batch as batch"),
        ("store/queue/_x.pyi", "from store.service.results import PutMessageResult"),
        ("store/service/runtime/_x.pyx", "from ..dispatching._waiting cimport Waiting"),
        ("store/service/dispatching/_x.pyx", "from store.service.writing._put cimport FastPut"),
        ("store/service/reading/_x.pyx", "from store.service.writing cimport _put"),
    ],
)
def test_what_breaks_the_layers_is_found(source: str, line: str) -> None:
    assert broken(Path(source), f'"""A module."""\n\n{line}\n') != []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("cq_file/_x.pyx", "from store.log._log cimport PlainLog"),
        ("cq_file/_x.pyx", "cimport cython, cq_file._units"),
        ("cq_file/_x.pxi", 'cdef extern from "_record.h":'),
        ("store/core/_x.pyx", 'include "_log.pxi"'),
        ("store/queue/_x.pyx", "from store.core._column cimport Column"),
        ("store/log/_x.pyx", "from ._tail cimport LogTail"),
        ("store/service/writing/_x.pyx", "from store.record._encode cimport PlainEncoder"),
        ("store/service/writing/_x.pyx", "from store.service.dispatching cimport _columns"),
    ],
)
def test_what_keeps_to_them_is_not(source: str, line: str) -> None:
    assert broken(Path(source), line) == []


def test_no_field_of_a_class_of_python_is_found_by_its_offset() -> None:
    parts = {name for module in MODULES for name in made_of(module)}
    found = {name: OFFSET_OF_FIELD.findall((ROOT / name).read_text("utf-8")) for name in parts}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module["name"])
def test_a_module_is_made_anew_where_anything_that_it_is_made_of_changes(
    module: dict[str, Any],
) -> None:
    assert made_of(module) == {*module["sources"], *module["depends"]}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module["name"])
def test_a_module_is_made_of_what_its_layer_may_know(module: dict[str, Any]) -> None:
    folders = {Path(name).parts[0] for name in [*made_of(module), *module.get("include-dirs", ())]}
    assert folders <= lower(module["name"].split(".")[0])
