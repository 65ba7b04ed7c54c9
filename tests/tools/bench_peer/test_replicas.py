"""A slave that has not what its master has is no measurement."""

from pathlib import Path

import pytest

from tools.bench.peer.replicas import refuse_other_bytes, refuse_unequal
from tools.bench.peer.sessions import UnequalError

FILE_BYTES = 100


def log(root: Path, data: bytes) -> Path:
    (root / "commitlog").mkdir(parents=True)
    for at in range(0, len(data), FILE_BYTES):
        (root / "commitlog" / f"{at:020d}").write_bytes(data[at : at + FILE_BYTES])
    return root


@pytest.mark.parametrize(
    ("place", "is_reported"), [(0, True), (99, True), (149, True), (150, False)]
)
def test_a_byte_that_differs_before_the_end_is_told(
    tmp_path: Path,
    place: int,
    is_reported: bool,  # noqa: FBT001 - a parameter
) -> None:
    data = bytearray(b"a" * 200)
    master = log(tmp_path / "master", bytes(data))
    data[place] += 1
    slave = log(tmp_path / "slave", bytes(data))
    refuse_other_bytes(master, master, 150)
    if not is_reported:
        refuse_other_bytes(master, slave, 150)
        return
    with pytest.raises(UnequalError, match=f"{place // FILE_BYTES * FILE_BYTES:020d}"):
        refuse_other_bytes(master, slave, 150)


@pytest.mark.parametrize("what", ["units", "log_end"])
def test_another_end_or_number_of_units_is_told(what: str) -> None:
    master: dict[str, float | str] = {"units": 5, "log_end": 50}
    refuse_unequal("cqstore", master, dict(master))
    with pytest.raises(UnequalError, match=f"{what} of cqstore's slave is 4, not {master[what]}"):
        refuse_unequal("cqstore", master, master | {what: 4})
