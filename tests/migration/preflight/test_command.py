"""``cqstore migrate preflight`` as an operator meets it, and the schema of its JSON."""

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer

from cqstore.cli.output import OutputFormat
from cqstore.migration.commands.preflight import _rows, preflight_command
from cqstore.migration.preflight import PreflightReport, preflight
from cqstore.migration.preflight.preflight_report import NameCount, Severity
from tests.kit import commands
from tests.kit.golden import NAMES
from tests.kit.tree import tree_digest
from tests.migration.preflight.kit import FakeMachine
from tools.bench.sample_store import make_store

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip


def run(*words: object, code: int) -> subprocess.CompletedProcess[str]:
    done = commands.run(["migrate", "preflight", *words])
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def faults(value: Any, schema: dict[str, Any], whole: dict[str, Any], at: str = "$") -> list[str]:
    """Return where ``value`` breaks ``schema``: the part of JSON Schema that pydantic writes."""
    if "$ref" in schema:
        return faults(value, whole["$defs"][schema["$ref"].rsplit("/", 1)[1]], whole, at)
    if "anyOf" in schema:
        each = [faults(value, choice, whole, at) for choice in schema["anyOf"]]
        return [] if [] in each else [f"{at}: none of anyOf"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: {value!r} is none of {schema['enum']}"]
    kind = schema["type"]
    good = (
        isinstance(value, int) and not isinstance(value, bool)
        if kind == "integer"
        else isinstance(value, _TYPES[kind])
    )
    if not good:
        return [f"{at}: no {kind}"]
    if kind == "array":
        rows = [faults(item, schema["items"], whole, f"{at}[{n}]") for n, item in enumerate(value)]
        return [fault for row in rows for fault in row]
    return _members(value, schema, whole, at) if kind == "object" else []


def _members(value: Any, schema: dict[str, Any], whole: dict[str, Any], at: str) -> list[str]:
    named = schema.get("properties", {})
    found = [f"{at}.{name} is missing" for name in schema.get("required", ()) if name not in value]
    for name, item in value.items():
        inner = named.get(name, schema.get("additionalProperties"))
        if inner is None:
            found.append(f"{at}.{name} is not in the schema")
        else:
            found += faults(item, inner, whole, f"{at}.{name}")
    return found


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return PreflightReport.model_json_schema(mode="serialization")


@pytest.mark.parametrize("name", NAMES)
def test_every_report_fits_the_schema_and_comes_back(
    golden_folder: Path, schema: dict[str, Any], name: str
) -> None:
    report = preflight(golden_folder / name, machine=FakeMachine(maps=1, memory=0))
    text = report.model_dump_json(by_alias=True)
    value = json.loads(text)
    assert faults(value, schema, schema) == []
    assert value["mayGoOn"] is report.may_go_on
    assert PreflightReport.model_validate_json(text) == report


def test_the_schema_finds_what_does_not_fit(golden_folder: Path, schema: dict[str, Any]) -> None:
    report = preflight(golden_folder / "special-default", machine=FakeMachine())
    value = report.model_dump(mode="json", by_alias=True)
    value["findings"][0]["severity"] = "bad"
    value["findings"][1]["affected"][0]["figures"]["x"] = []
    value["queues"] = "many"
    del value["mayGoOn"]
    assert len(faults(value, schema, schema)) == 4


def test_a_store_that_may_move_exits_0(golden_folder: Path, tmp_path: Path) -> None:
    root = golden_folder / "basic-default"
    before = tree_digest(root)
    done = run(root, code=0)
    assert "may be moved to rocksdb" in done.stderr
    assert done.stdout.splitlines()[0].split() == [
        "severity", "code", "finding", "figures", "affected", "where",
    ]  # fmt: skip
    value = json.loads(run(root, "--output", "json", code=0).stdout)
    assert (value["mayGoOn"], value["layout"], value["units"]) == (True, "file", 2000)
    assert tree_digest(root) == before
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_must_not_exits_1_and_says_why(golden_folder: Path) -> None:
    root = golden_folder / "special-default"
    done = run(root, code=1)
    assert "must not be moved to rocksdb: 1 finding forbids it" in done.stderr
    assert "batch_1/0" in done.stdout
    value = json.loads(run(root, "--to", "file", "--output", "json", code=1).stdout)
    refusals = [each["code"] for each in value["findings"] if each["severity"] == "refuse"]
    assert refusals == ["nothing-to-move", "batch-queues"]


def test_the_conf_and_the_release_are_asked_for(golden_folder: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("useSeparateStorePathForRocksdbCQ = true\n")
    root = golden_folder / "basic-default"
    words = (root, "--broker-conf", conf, "--output", "json")
    new = json.loads(run(*words, code=0).stdout)
    old = json.loads(run(*words, "--rocketmq", "5.3.3", code=0).stdout)
    assert "key-too-new" not in [each["code"] for each in new["findings"]]
    assert "key-too-new" in [each["code"] for each in old["findings"]]
    assert "invalid release of RocketMQ 'five'" in run(root, "--rocketmq", "five", code=2).stderr
    assert (
        "invalid target backend 'x': expected 'file' or 'rocksdb'"
        in run(root, "--to", "x", code=2).stderr
    )


def test_a_folder_that_is_none_is_a_refusal(tmp_path: Path) -> None:
    done = run(tmp_path / "missing", code=1)
    assert "No store here" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_store_is_looked_at_by_its_own_settings_or_the_brokers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_store(tmp_path / "store", 40, 4)
    odd, fine = tmp_path / "odd.conf", tmp_path / "fine.conf"
    odd.write_text("mappedFileSizeConsumeQueue=4000\n")
    fine.write_text("brokerId=0\n")

    def codes_of(**words: Any) -> list[str]:
        with suppress(typer.Exit):
            preflight_command(tmp_path / "store", kind=OutputFormat.JSON, **words)
        value = json.loads(capsys.readouterr().out)
        return [finding["code"] for finding in value["findings"]]

    opened = "cannot-be-opened"
    assert opened not in codes_of()
    assert opened in codes_of(config=odd)
    assert opened in codes_of(broker_conf=odd)
    assert opened not in codes_of(config=fine, broker_conf=odd)


def test_a_table_shows_three_names_and_counts_the_rest(
    golden_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name of forty characters is shown whole; of two refusals there are two reasons."""
    tallies = [NameCount() for _ in range(5)]
    for count, tally in enumerate(tallies):
        for number in range(count):
            tally.add("n" * (39 + number), **({"units": 7, "at": 1} if number == 1 else {}))
    found = [
        finding for count, tally in enumerate(tallies)
        for finding in tally.finding(f"c{count}", Severity.REFUSE, "sentence", a=1, b=2)
    ]  # fmt: skip
    names = ["n" * 39, f"{'n' * 40} (units 7, at 1)", "n" * 40 + "..."]
    wanted = [names[0], "; ".join(names[:2]), "; ".join(names), "; ".join([*names, "and 1 more"])]
    report = preflight(golden_folder / "basic-default", machine=FakeMachine())
    for some in (found, found[:1], []):
        made = report.model_copy(update={"findings": some})
        rows = [*_rows(made)]
        assert [row["affected"] for row in rows] == ["", *wanted[: len(some)]]
        assert [row["figures"] for row in rows] == ["", *["a 1, b 2"] * len(some)]
        monkeypatch.setattr(
            "cqstore.migration.commands.preflight.preflight",
            lambda *_, made=made, **__: made,
        )
        code = 0
        try:
            preflight_command(golden_folder)
        except typer.Exit as exc:
            code = exc.exit_code
        said = capsys.readouterr()
        assert code == bool(some)
        assert [f"c{n}" in said.out for n in (1, 2)] == [bool(some), len(some) > 1]
        ends = {0: "may be moved to rocksdb", 1: "1 finding forbids it", 4: "4 findings forbid it"}
        assert said.err.strip().endswith(ends[len(some)])
