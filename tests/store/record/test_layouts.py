"""Fixed-width records: ``struct`` and numpy read the same bytes alike, from one declaration."""

import random

import numpy as np
import pytest

from cqstore.store.queue.units import PACKED_PREFIX, QUEUE_UNIT, UNIT_COLUMNS
from tests.kit.format_page import LAYOUTS


@pytest.mark.parametrize("name", LAYOUTS)
def test_numpy_reads_what_struct_reads(name: str) -> None:
    layout = LAYOUTS[name]
    data = random.Random(name).randbytes(5 * layout.size)
    rows = np.frombuffer(data, layout.dtype)
    assert [row.item() for row in rows] == [tuple(row) for row in layout.iter_unpack(data)]
    names = [field for field, _ in layout.wires]
    assert list(layout.dtype.names or ()) == names
    for field in names:  # also a column of its own, where it lies
        alone = layout.dtype[[field]]
        assert alone.itemsize == layout.size
        assert (np.frombuffer(data, alone)[field] == rows[field]).all()


def test_a_block_has_the_fields_that_its_stride_has_room_for() -> None:
    assert {kind.itemsize for kind in UNIT_COLUMNS.values()} == set(UNIT_COLUMNS)
    assert QUEUE_UNIT.dtype.names == (*(UNIT_COLUMNS[PACKED_PREFIX].names or ()), "store_timestamp")
