"""A disk that is really full: 2 MB of tmpfs in a mount namespace of its own.

Where no namespace can be made these tests fail, unless ``CQSTORE_NO_MOUNT=1`` says that this is
known: then they are skipped.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.engines import ENGINES

PRIVATE = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
MOUNT = (
    'mount -t tmpfs -o size=64m none "$1" && mkdir "$1/small" "$1/root"'
    ' && mount -t tmpfs -o size=2m none "$1/small" && shift && exec "$@"'
)
CASES = [
    ("commitlog", "file", "auto", "status"),
    ("consumequeue", "file", "auto", "status"),
    ("index", "file", "auto", "status"),
    (".", "file", "auto", "error or status"),
    *[
        pytest.param(
            part,
            "rocksdb",
            engine.value,
            expected,
            marks=[pytest.mark.long] if engine is not ENGINES[-1] else [],
        )
        for part, expected in (
            ("index", "status"),
            ("consumequeue", "error"),
            (".", "error or status"),
        )
        for engine in ENGINES
    ],
]


def on_small_disk(mount: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run ``command`` with 2 MB of tmpfs on ``mount/small`` and more around it, for it alone."""
    mount.mkdir()
    whole = [*PRIVATE, "sh", "-c", MOUNT, "sh", str(mount), *command]
    return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module", autouse=True)
def _mounts(tmp_path_factory: pytest.TempPathFactory) -> None:
    if os.environ.get("CQSTORE_NO_MOUNT") == "1":
        pytest.skip("CQSTORE_NO_MOUNT=1: no mount namespaces here")
    done = on_small_disk(tmp_path_factory.mktemp("try") / "mount", ["true"])
    if done.returncode:
        pytest.fail(
            f"no tmpfs can be mounted in a namespace of our own ({done.stderr.strip()}):"
            " set CQSTORE_NO_MOUNT=1 where that is known"
        )


@pytest.mark.parametrize(("part", "backend", "engine", "expected"), CASES)
def test_a_full_disk_is_survived(
    tmp_path: Path, part: str, backend: str, engine: str, expected: str
) -> None:
    mount = tmp_path / "mount"
    small = mount / "small"
    root = small / "store" if part == "." else mount / "root"
    command = [sys.executable, "-m", "tests.faults.full_disk", str(small), str(root)]
    done = on_small_disk(mount, [*command, part, backend, engine])
    assert done.returncode == 0, done.stderr  # below 0: the number of a signal
    assert done.stdout.strip() in expected.split(" or ")
