"""Compiled code keeps to the layers too, which `lint-imports` cannot see: it reads Python alone."""

import re
from pathlib import Path

import pytest

from tests.kit.compiled_sources import sources, unseen
from tests.kit.product_tree import ROOT, product_files

OFFSET_OF_FIELD = re.compile(r"structmember|PyMember\w*|offsetof|dictoffset")
"""How C finds a field of a class of Python: compiled code has the fields in classes of its own."""


def broken(source: Path, text: str) -> list[str]:
    """Return what a source names that its room may not know of."""
    return [f"{source}: {name}" for name in sorted(unseen(source, text))]


@pytest.mark.parametrize("source", sources(), ids=str)
def test_compiled_code_names_only_what_its_layer_may_know(source: Path) -> None:
    text = (ROOT / source).read_text("utf-8")
    assert broken(source, text) == []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("store/core/_x.pyx", "from cqstore.cq_file._units cimport FileUnits"),
        ("store/core/_x.pyx", "    from cqstore.cq_file.layout import FILE_UNIT"),
        ("store/core/_x.pyx", "cimport cython, cqstore.cq_file._units as units"),
        ("store/core/_x.pyi", "import os, cqstore.migration.status"),
        ("store/core/_x.pyx", 'include "../../cq_file/_units.pyx"'),
        ("store/core/_x.pxi", 'include "cq_file/_units.pyx"'),
        ("store/core/_x.pxd", 'cdef extern from "../../cq_file/_units.h":'),
        ("store/core/_x.pxi", '#include "cq_file/_units.h"'),
        ("cq_file/_x.pyx", "from cq_rocksdb import keys"),
        ("cq_rocksdb/engine/_x.pyx", "from cqstore.cq_file._units cimport FileUnits"),
        ("cq_file/_x.pyx", "from tests.kit import pages"),
        ("cq_file/_x.pyx", "from store.core._maps cimport Maps"),
        ("store/core/_x.pyx", "from cqstore.store.log._tail cimport LogTail"),
        ("store/log/_x.pyx", "from cqstore.store.queue._batch cimport UnitColumns"),
        ("store/record/_x.pxd", "    from cqstore.store.log cimport _tail"),
        ("store/record/_x.pyx", "from cqstore.store cimport (\n    core, log,\n)"),
        ("store/record/_x.pyx", 'include "../log/_tail.pxd"'),
        ("store/queue/_x.pyx", "cimport cython, cqstore.store.index._batch as batch"),
        ("store/queue/_x.pyi", "from cqstore.store.service.results import PutMessageResult"),
        ("store/service/runtime/_x.pyx", "from ..dispatching._waiting cimport Waiting"),
        (
            "store/service/dispatching/_x.pyx",
            "from cqstore.store.service.writing._put cimport FastPut",
        ),
        ("store/service/reading/_x.pyx", "from cqstore.store.service.writing cimport _put"),
    ],
)
def test_what_breaks_the_layers_is_found(source: str, line: str) -> None:
    assert broken(Path(source), f'"""A module."""\n\n{line}\n') != []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("cq_file/_x.pyx", "from cqstore.store.log._log cimport FastLog"),
        ("cq_file/_x.pyx", "cimport cython, cqstore.cq_file._units"),
        ("cq_file/_x.pxi", 'cdef extern from "_record.h":'),
        ("store/core/_x.pyx", 'include "_log.pxi"'),
        ("store/queue/_x.pyx", "from cqstore.store.core._column cimport Column"),
        ("store/log/_x.pyx", "from ._tail cimport LogTail"),
        ("store/service/writing/_x.pyx", "from cqstore.store.record._encode cimport FastEncoder"),
        ("store/service/writing/_x.pyx", "from cqstore.store.service.dispatching cimport _columns"),
    ],
)
def test_what_keeps_to_them_is_not(source: str, line: str) -> None:
    assert broken(Path(source), line) == []


def test_no_field_of_a_class_of_python_is_found_by_its_offset() -> None:
    parts = product_files(".pyx", ".pxd", ".pxi", ".h")
    found = {name: OFFSET_OF_FIELD.findall((ROOT / name).read_text("utf-8")) for name in parts}
    assert len(found) > 80
    assert {name: words for name, words in found.items() if words} == {}
