"""A disk that becomes full in the middle of a migration: 32 MB of tmpfs in a namespace of its own.

Where no namespace can be made these tests fail, unless ``CQSTORE_NO_MOUNT=1`` says that this is
known: then they are skipped.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.test_full_disk import PRIVATE
from tests.migration.full_disk import STEPS

MOUNT = (
    'mount -t tmpfs -o size=320m none "$1" && mkdir "$1/small" "$1/large"'
    ' && mount -t tmpfs -o size=32m none "$1/small" && shift && exec "$@"'
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [step if step == "run" else pytest.param(step, marks=pytest.mark.long) for step in STEPS],
)
def test_a_full_disk_is_told_and_the_step_goes_on_later(tmp_path: Path, step: str) -> None:
    if os.environ.get("CQSTORE_NO_MOUNT") == "1":
        pytest.skip("CQSTORE_NO_MOUNT=1: no mount namespaces here")
    small, large = str(tmp_path / "small"), str(tmp_path / "large")
    command = [sys.executable, "-m", "tests.migration.full_disk", step, small, large]
    whole = [*PRIVATE, "sh", "-c", MOUNT, "sh", str(tmp_path), *command]
    done = subprocess.run(whole, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, "right"), done.stderr
