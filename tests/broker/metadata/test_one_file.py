"""One file of JSON and its ``.bak``: which of them is read, and what is a fault."""

import errno
import json
from pathlib import Path

import pytest

from cqstore.broker.metadata import json_form
from cqstore.broker.metadata.json_form import read_json_file
from cqstore.store.errors import StoreIOError

NAME = "consumerOffset.json"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    for name, offset in ((NAME, 7), (f"{NAME}.bak", 1)):
        (tmp_path / name).write_text(json.dumps({"offsetTable": {"t@g": {"0": offset}}}))
    return tmp_path


@pytest.mark.parametrize("content", [None, "", '{"offsetTable":{"t@g'])
def test_a_file_that_is_none_is_read_from_its_backup(config: Path, content: str | None) -> None:
    (config / NAME).unlink()
    if content is not None:
        (config / NAME).write_text(content)
    found = read_json_file(config, NAME)
    assert (found.offsets, found.faults) == ({"t@g": {0: 1}}, [])


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_a_file_that_the_system_does_not_give_now_is_a_fault(
    config: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """It holds what is newer than the backup: offsets would go back without a word."""
    read_file = json_form.read_file  # type: ignore[attr-defined]

    def refuse(path: Path, most: int) -> bytes:
        if path.name == NAME:
            raise OSError(code, "no")
        data: bytes = read_file(path, most)
        return data

    monkeypatch.setattr(json_form, "read_file", refuse)
    (fault,) = read_json_file(config, NAME).faults
    assert isinstance(fault, StoreIOError)
    assert fault.path == config / NAME
