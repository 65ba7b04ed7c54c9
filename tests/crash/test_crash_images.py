"""A copy of an open store is of one moment, whatever other threads write while it is taken."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.crash_images import crash_image


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda root: (root / "000008.sst").write_bytes(b"rows"),
        lambda root: (root / "000008.sst").write_bytes(b"rows") and (root / "000004.log").unlink(),
        lambda root: (root / "000009.sst").touch(),
    ],
    ids=["a table is written", "and the log of it removed", "a table is begun"],
)
def test_what_changes_meanwhile_has_the_copy_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Path], object]
) -> None:
    root, real, copied = tmp_path / "store", shutil.copytree, list[str]()
    root.mkdir()
    for name, data in (("000004.log", b"rows"), ("000008.sst", b""), ("MANIFEST", b"no table")):
        (root / name).write_bytes(data)

    def copytree(source: Path, target: Path, ignore: Callable[[str, list[str]], set[str]]) -> Path:
        def copy(one: str, other: str) -> str:
            done = shutil.copy2(one, other)
            copied.append(Path(one).name)
            if copied.count("000008.sst") == 1 == len(copied) - copied.index("000008.sst"):
                meanwhile(root)
                (root / "MANIFEST").write_bytes(b"tables")
            return done

        return Path(real(source, target, ignore=ignore, copy_function=copy))

    monkeypatch.setattr(shutil, "copytree", copytree)
    crash_image(root, tmp_path / "image")
    assert contents(tmp_path / "image") == contents(root)
    assert len(copied) > len(contents(root))
