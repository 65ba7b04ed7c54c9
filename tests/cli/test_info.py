"""``cqstore info``: its schema, its types, and a table that fits; and what is meant instead."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cqstore.cli.info_facts import FACTS, snake
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.command_tree import verbs
from tests.kit.commands import COMMAND
from tests.kit.told import CONFIG
from tests.kit.verbs import call, rows

BACKENDS = ["file", "rocksdb"]
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict,
    "null": type(None),
}  # fmt: skip


@pytest.fixture(params=BACKENDS)
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    with MessageStore.open(tmp_path / "s", CONFIG, backend=request.param) as store:
        for number in range(20):
            assert store.put_message(Message(f"t{number % 3}", bytes(100))).ok
    return tmp_path / "s"


def fits(value: object, reported: dict[str, Any]) -> bool:
    """Return whether a value is of the types that a schema names."""
    if reported["type"] == "array":
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    kinds = [reported["type"]] if isinstance(reported["type"], str) else reported["type"]
    is_whole = isinstance(value, bool) and "boolean" not in kinds
    return not is_whole and any(isinstance(value, _TYPES[kind]) for kind in kinds)


def test_json_is_what_the_schema_says(root: Path) -> None:
    schema = json.loads(call("info", "--schema").stdout)
    (facts,) = rows("info", root)
    assert [*facts] == schema["required"] == [*schema["properties"]] == [*FACTS]
    for name, value in facts.items():
        assert fits(value, schema["properties"][name]), (name, value)
        assert name == snake(name)
    assert all(key == snake(key) for key in facts["queue_facts"])
    assert facts["checkpoint_physic_msg_time"].startswith("20")
    assert facts["oldest_file_time"].endswith("+00:00")


def test_the_table_fits_a_hundred_columns(root: Path) -> None:
    (root / "consumequeue" / "x").mkdir(parents=True, exist_ok=True)
    (root / "abort").touch()
    data = bytearray((root / "commitlog" / f"{0:020d}").read_bytes())
    end = len(bytes(data).rstrip(b"\0"))
    data[end + 8 : end + 12] = b"torn"
    (root / "commitlog" / f"{0:020d}").write_bytes(data)
    lines = call("info", root).stdout.splitlines()
    assert max(map(len, lines)) <= 100
    reported = {line[:32].strip(): line for line in lines}
    assert "not clean: recovery is needed" in reported["last exit"]
    assert "16,384 bytes" in reported["commit log file size"]
    assert "after the end of the log" in reported["warnings"]
    assert "72" in reported["file reserved hours"]
    assert "timestamp" not in "".join(lines)


def test_top_fits_a_terminal_of_eighty_columns(root: Path) -> None:
    lines = call("top", root, "--once").stdout.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert len([line for line in lines if line.startswith("log ")]) == 1
    assert "2," not in "".join(lines)
    assert [row["part"] for row in rows("top", root)].count("log") > 3


def test_clean_says_which_setting_decides(root: Path, tmp_path: Path) -> None:
    output = call("clean", root).stderr
    assert "fileReservedTime is 72 hours by default (see --config)" in output
    assert "(diskMaxUsedSpaceRatio)" in output
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=5\n")
    done = call("clean", root, "--config", conf)
    assert "by default (see --config)" not in done.stderr
    assert "within 5 hours (fileReservedTime)" in done.stdout or "last file" in done.stdout


@pytest.mark.parametrize(("given", "in_force"), [(99, 95), (95, 95), (60, 60), (3, 10)])
def test_the_disk_level_shown_is_the_one_in_force(
    root: Path, tmp_path: Path, given: int, in_force: int
) -> None:
    # RocketMQ's MessageStoreConfig.getDiskMaxUsedSpaceRatio keeps it within 10 and 95.
    conf = tmp_path / "broker.conf"
    conf.write_text(f"diskMaxUsedSpaceRatio={given}\n")
    info = json.loads(call("info", root, "--config", conf, "--output", "json").stdout)
    assert info["disk_max_used_percent"] == in_force
    if given > 90:
        assert f"up to {in_force} % (disk" in call("clean", root, "--config", conf).stderr


# ---- completion


@pytest.mark.slow
def test_bash_completes_verbs_and_options(tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(call("completion", "bash").stdout)
    (tmp_path / "cqstore").symlink_to(COMMAND[0])
    requested = {"mig": "migrate", "migrate pla": "plan", "check --rep": "--repair"}
    words = "; ".join(
        f"COMP_WORDS=(cqstore {each}); COMP_CWORD={len(each.split())}; _cqstore_completion"
        f" {tmp_path}/cqstore; echo ${{COMPREPLY[@]}}"
        for each in requested
    )
    done = subprocess.run(
        ["bash", "-c", f". {script}; {words}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [*requested.values()]
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_of_its_own(shell: str) -> None:
    script = call("completion", shell).stdout
    assert f"complete_{shell}" in script
    assert "_CQSTORE_COMPLETE" in script
    assert call("completion", "sh").exit_code == 2
    assert "completion" in verbs()
