"""The forms of metadata, written anew by RocketMQ's managers of 5.5.1, and read by us."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.peer.maven import JavaProgram, UnavailableError
from metadata.forms import read_forms
from metadata.model import Form
from store.paths import StorePaths
from tests.kit.metadata_forms import SETTINGS

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def managers() -> JavaProgram:
    try:
        return JavaProgram.build(Path(__file__).parent / "metadata", "interop.Metadata", "5.5.1")
    except UnavailableError as exc:
        pytest.skip(f"the managers of RocketMQ 5.5.1 cannot be had: {exc}")


def asked(managers: JavaProgram, word: str, root: Path, form: Form) -> dict[str, Any]:
    command = [*managers.command(root.parent, ["-Xmx512m"]), word, str(root), *SETTINGS[form]]
    done = subprocess.run(
        command, capture_output=True, check=True, timeout=120, env=JavaProgram.environment()
    )
    tables: dict[str, Any] = json.loads(done.stdout)
    return tables


@pytest.mark.parametrize("form", list(Form))
def test_what_the_managers_wrote_is_read(managers: JavaProgram, tmp_path: Path, form: Form) -> None:
    root = tmp_path / "store"
    written = asked(managers, "write", root, form)
    (found,) = read_forms(StorePaths(root))
    assert found.form is form
    assert not found.faults
    kept = {name: written["topics"][name] for name in found.topics}
    assert found.topics == kept
    assert "prüfung测试" in kept
    assert found.groups == {name: written["groups"][name] for name in found.groups}
    read = {key: {str(each): at for each, at in row.items()} for key, row in found.offsets.items()}
    light = {key for key in read if key.startswith("%LMQ%")}
    # Version 2 keeps light queues' offsets on disk, not in this table.
    assert {key: read[key] for key in read.keys() - light} == {
        key: row for key, row in written["offsets"].items() if not key.startswith("%LMQ%")
    }
