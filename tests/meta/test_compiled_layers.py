"""Compiled code keeps to the layers too, which `lint-imports` cannot see: it reads Python alone."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.kit.compiled_sources import (
    MODULES,
    classes_with_slots,
    lower,
    made_of,
    nameless_slots,
    packages_of,
    slots_named,
    sources,
    unseen,
)
from tests.kit.pages import ROOT

HELPERS = Path("store/core/_slots.pxd")
slots = cache(classes_with_slots)


def is_unsorted(source: Path) -> bool:
    """Whether a source is a text that a module of the core includes: it has no room of its own."""
    return source.parent == HELPERS.parent and (source.suffix == ".pxi" or source.stem == "_reads")


def broken(source: Path, text: str) -> list[str]:
    """Return what a source names that its package or its room may not know of."""
    known = lower(source.parts[0])
    classes = [fields for package in known for fields in slots(package).values()]
    return [
        *(f"{source}: {package}" for package in sorted(packages_of(source, text) - known)),
        *(f"{source}: {name}" for name in sorted(unseen(source, text)) if not is_unsorted(source)),
        *(
            f"{source}: {sorted(names)} of {owner}"
            for owner, names in slots_named(text).items()
            if not any(names <= fields for fields in classes)
        ),
    ]


@pytest.mark.parametrize("source", sources(), ids=str)
def test_compiled_code_names_only_what_its_layer_may_know(source: Path) -> None:
    text = (ROOT / source).read_text("utf-8")
    assert broken(source, text) == []
    assert source == HELPERS or not nameless_slots(text)


def test_none_is_passed_over() -> None:
    parts = {Path(name) for module in MODULES for name in made_of(module)}
    assert {part for part in parts if part.suffix != ".h"} <= {*sources()}
    texts = {
        source: (ROOT / source).read_text("utf-8") for source in sources() if source != HELPERS
    }
    naming = {source for source, text in texts.items() if slots_named(text)}
    assert naming
    asking = re.compile(r"slot_of\(|slot_of_class\(|its_slot\(")
    assert naming == {source for source, text in texts.items() if asking.search(text)}


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("store/core/_x.pyx", "from cq_file._native cimport FileUnits"),
        ("store/core/_x.pyx", "    from cq_file.layout import FILE_UNIT"),
        ("store/core/_x.pyx", "cimport cython, cq_file._native as native"),
        ("store/core/_x.pyi", "import os, migration.status"),
        ("store/core/_x.pyx", 'include "../../cq_file/_units.pxi"'),
        ("store/core/_x.pxi", 'include "cq_file/_units.pxi"'),
        ("store/core/_x.pxd", 'cdef extern from "../../cq_file/_units.h":'),
        ("store/core/_x.pxi", '#include "cq_file/_units.h"'),
        ("cq_file/_x.pyx", "from cq_rocksdb import keys"),
        ("cq_rocksdb/_x.pyx", "from cq_file._native cimport FileUnits"),
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
        ("store/core/_x.pxi", 'self.at = slot_of_class(self._queue, "_tail_path")'),
        ("store/core/_x.pxi", "at = its_slot(table.queues, 'simple')"),
        ("store/core/_x.pxi", 'at = slot_of(type(queue), b"known_path")'),
        (
            "store/core/_x.pxi",  # each is a field of a class of the store, but of no one both
            'slot_of_class(files, "generation"), slot_of_class(files, "max_offset")',
        ),
    ],
)
def test_what_breaks_the_layers_is_found(source: str, line: str) -> None:
    assert broken(Path(source), f'"""A module."""\n\n{line}\n') != []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("cq_file/_x.pyx", "from store.log._log cimport PlainLog"),
        ("cq_file/_x.pyx", "cimport cython, cq_file._native"),
        ("cq_file/_x.pxi", 'self.at = slot_of_class(self._queue, "_tail_path")'),
        ("cq_file/_x.pxi", 'cdef extern from "_record.h":'),
        ("cq_file/_x.pxi", 'self.at = slot_of_class(self._open, "number")'),
        ("store/core/_x.pyx", 'include "_log.pxi"'),
        ("store/queue/_x.pyx", "from store.core._column cimport Column"),
        ("store/log/_x.pyx", "from ._tail cimport LogTail"),
        ("store/service/writing/_x.pyx", "from store.record._encode cimport PlainEncoder"),
        ("store/service/writing/_x.pyx", "from store.service.dispatching cimport _columns"),
    ],
)
def test_what_keeps_to_them_is_not(source: str, line: str) -> None:
    assert broken(Path(source), line) == []


def test_a_field_whose_name_is_not_there_is_found() -> None:
    assert nameless_slots("slot_of_class(owner, name)") == 1


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module["name"])
def test_a_module_is_made_anew_where_anything_that_it_is_made_of_changes(
    module: dict[str, Any],
) -> None:
    assert made_of(module) == {*module["sources"], *module["depends"]}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module["name"])
def test_a_module_is_made_of_what_its_layer_may_know(module: dict[str, Any]) -> None:
    folders = {Path(name).parts[0] for name in [*made_of(module), *module.get("include-dirs", ())]}
    assert folders <= lower(module["name"].split(".")[0])
