"""What the repository keeps has names that every system and tool takes."""

import re
import subprocess

from tests.kit.pages import ROOT


def test_files_have_plain_names() -> None:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    names = done.stdout.split(b"\0")[:-1]
    assert len(names) > 1000
    assert [name for name in names if not re.fullmatch(rb"[\w.+/-]+", name)] == []
