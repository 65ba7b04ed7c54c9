"""A full disk of Spark's own temporary files: 300 KB of tmpfs in a namespace of its own.

Where no namespace can be made this fails, unless ``CQSTORE_NO_MOUNT=1`` says that this is known.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.faults.test_full_disk import PRIVATE
from tests.kit.commands import COMMAND
from tools.bench.sample_store import make_store

MOUNT = 'mount -t tmpfs -o size=300k none "$SPARK_LOCAL_DIRS" && exec "$@"'
QUERY = "select phy_offset, body, count(*) from commitlog group by 1, 2 order by 2"


@pytest.mark.long
def test_a_full_temporary_folder_of_sparks_is_told_with_its_path(tmp_path: Path) -> None:
    if os.environ.get("CQSTORE_NO_MOUNT") == "1":
        pytest.skip("CQSTORE_NO_MOUNT=1: no mount namespaces here")
    small = tmp_path / "small"
    small.mkdir()
    make_store(tmp_path / "store", 20_000, 5)
    command = [*COMMAND, "sql", str(tmp_path / "store"), QUERY, "--quiet"]
    done = subprocess.run(
        [*PRIVATE, "sh", "-c", MOUNT, "sh", *command], capture_output=True, text=True, check=False,
        timeout=300, env=os.environ | {"SPARK_LOCAL_DIRS": str(small)},
    )  # fmt: skip
    assert done.returncode == 2
    output = [line for line in done.stderr.splitlines() if "incubator" not in line]
    assert output == [
        "cqstore: no space left in Spark's temporary folder: free some space, or set"
        f" SPARK_LOCAL_DIRS to another folder ({small})"
    ]
