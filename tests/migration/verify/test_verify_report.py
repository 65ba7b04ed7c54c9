"""The report: when it may be trusted, what it looks like, and the command that prints it."""

import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import cqstore.migration.verify
from cqstore.migration.commands import app
from cqstore.migration.commands.verify import both_backends
from cqstore.migration.verify import read_report, verified, verify_migration, verify_queues
from cqstore.migration.verify.page import page
from cqstore.migration.verify.verify_report import VerifyReport, report_schema
from cqstore.migration.workspace import Workspace
from cqstore.store.comparing.tally import MAX_FINDINGS, MAX_QUEUES, DifferenceKind
from cqstore.store.errors import CorruptionError, RefusedStoreError, UnsupportedFormatError
from cqstore.store.queue.units import QueueKey
from tests.kit.golden import load_dump
from tests.kit.tree import tree_digest
from tests.migration.made import Made, in_this_process, migrate

QUEUE = QueueKey("p", 1)
Golden = Callable[[str], Path]


@pytest.fixture
def made(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> Made:
    return migrate(golden("basic-default"), "rocksdb", monkeypatch)


@pytest.fixture
def cli() -> typer.Typer:
    outer = typer.Typer()
    outer.add_typer(app, name="migrate")
    return outer


# ---- when it counts


def test_without_a_comparison_nothing_is_verified(made: Made) -> None:
    assert "no report found" in str(verified(made.space, made.plan))


def test_an_interrupted_comparison_leaves_no_report(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.verify()
    assert verified(made.space, made.plan) is None

    def interrupted(*_: object, **__: object) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr("cqstore.migration.verify.verification.run_tasks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.verify()
    assert not made.space.report.exists()
    assert not made.space.report_page.exists()
    assert "no report found" in str(verified(made.space, made.plan))


def test_the_report_of_another_plan_does_not_count(made: Made) -> None:
    made.verify()
    other = made.plan.model_copy(update={"digest": "0" * 32})
    assert "another plan" in str(verified(made.space, other))


def test_the_report_of_other_files_does_not_count(made: Made) -> None:
    made.verify()
    made.put_end(QUEUE, 0, 95)
    assert "changed after the comparison" in str(verified(made.space, made.plan))


def test_a_comparison_changes_neither_the_store_nor_what_was_made(made: Made) -> None:
    queues = tree_digest(made.space.made.consume_queue)
    log, files = tree_digest(made.root / "commitlog"), tree_digest(made.root / "consumequeue")
    made.verify(deep=True)
    assert tree_digest(made.space.made.consume_queue) == queues
    assert (tree_digest(made.root / "commitlog"), tree_digest(made.root / "consumequeue")) == (
        log,
        files,
    )


def test_before_a_run_there_is_nothing_to_compare(made: Made) -> None:
    shutil.rmtree(made.space.made.root)
    with pytest.raises(RefusedStoreError, match="no new queues to compare"):
        made.verify()


def test_the_journal_has_the_verdict(made: Made) -> None:
    made.verify()
    entry = made.space.history()[-1]
    assert (entry["step"], entry["plan"], entry["verdict"]) == (
        "verified", made.plan.digest, "equal"
    )  # fmt: skip


def test_units_behind_the_plans_end_may_be_absent(made: Made) -> None:
    """Two units of 95 are taken for later ones: then they and the next offset are no difference."""
    made.delete_units(QUEUE, range(93, 95))
    made.put_end(QUEUE, 0, 93)
    held = next(
        q for q in load_dump("basic-default")["queues"] if q["topic"] == "p" and q["queueId"]
    )
    from cqstore.migration.verify import verification  # noqa: PLC0415

    original = verification._compare
    end = held["units"][92][1] + held["units"][92][2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            verification, "_compare", lambda *a, **k: original(*a, **{**k, "complete_to": end})
        )
        result = made.verify().result
    assert (result.counts, result.notes.later) == ({}, 2)
    assert made.verify().result.counts == {
        DifferenceKind.MISSING_TAIL: 2,
        DifferenceKind.NEXT_OFFSET: 1,
    }


# ---- both backends of one store, as RocketMQ's double write left them


@pytest.mark.parametrize("name", ["basic-combine", "special-combine"])
def test_what_rocketmq_wrote_twice_is_equal(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("cqstore.migration.verify.verification.run_tasks", in_this_process)
    root = golden(name)
    report = verify_queues(*both_backends(root, None), workspace=Workspace.of(root), deep=True)
    assert (report.verdict, report.plan) == ("equal", None)
    dump = load_dump(name)
    live = [u for q in dump["queues"] for u in q["units"] if u[1] >= dump["commitLog"]["minPhy"]]
    assert report.result.source.units == len(live)
    assert report.result.source == report.result.target


def test_a_store_of_one_backend_is_not_called_equal(golden: Golden) -> None:
    with pytest.raises(RefusedStoreError, match="only file queues"):
        both_backends(golden("basic-default"), None)


# ---- what it looks like


def test_the_schema_file_is_that_of_the_models() -> None:
    file = Path(str(cqstore.migration.verify.__file__)).with_name("report.schema.json")
    assert file.read_text() == report_schema()


def test_a_report_that_was_written_is_read_again_and_others_are_refused(made: Made) -> None:
    report = made.verify()
    path = made.space.report
    assert read_report(path) == report
    data = json.loads(path.read_text())
    required = set(json.loads(report_schema())["required"])
    assert set(data) == required | {"format", "clients", "ran_in"}
    assert data["ran_in"].keys() == {"plan", "run", "verify"}
    assert data["ran_in"]["plan"] == "this process"
    path.write_text(json.dumps(data | {"plan": data["plan"] | {"at_rest": "ab-cd"}}))
    assert read_report(path) == report, "as an older release has written it"
    path.write_text(json.dumps(data | {"format": 2}))
    with pytest.raises(UnsupportedFormatError, match="format 2"):
        read_report(path)
    path.write_text(json.dumps(data | {"surprise": 1}))
    with pytest.raises(CorruptionError, match="not a valid report"):
        read_report(path)


def test_the_report_stays_small_and_counts_all(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden("wide-combine")
    monkeypatch.setattr("cqstore.migration.verify.verification.run_tasks", in_this_process)
    first, second = both_backends(root, None)
    files = root / "consumequeue"
    gone = [folder for folder in files.iterdir() if folder.is_dir()]
    for folder in gone:
        shutil.rmtree(folder)
    report = verify_queues(second, first, workspace=Workspace.of(root), range_queues=500)
    queues = [queue for queue in load_dump("wide-combine")["queues"] if queue["max"]]
    assert report.tasks > 2
    assert report.result.counts == {DifferenceKind.ONLY_SOURCE: len(queues)}
    assert report.result.units_only_source == sum(len(queue["units"]) for queue in queues)
    assert report.result.topics_only_source == len({queue["topic"] for queue in queues})
    assert len(report.result.listed) == MAX_QUEUES < report.result.differing
    assert f"The first 1,000 of {len(queues):,}" in page(report)


def test_findings_of_one_queue_are_capped_and_counted(made: Made) -> None:
    for offset in range(1, 1 + 2 * (MAX_FINDINGS + 3), 2):
        made.delete_units(QUEUE, range(offset, offset + 1))
    (queue,) = made.verify().result.listed
    assert queue.counts == {DifferenceKind.HOLE: MAX_FINDINGS + 3}
    assert (len(queue.findings), queue.more_findings) == (MAX_FINDINGS, 3)


class _Strict(HTMLParser):
    """Collects tags, and fails on one that is not closed in order."""

    VOID = frozenset({"meta", "br", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_proof_is_in_the_box_and_narrow_rows_name_their_columns(made: Made) -> None:
    made.delete_units(QUEUE, range(4, 6))
    report = made.verify()
    text = page(report)
    box = text[text.index("<header") : text.index("</header>")]
    for sums in (report.result.source, report.result.target):
        assert f"{sums.units:,} units, {sums.bytes:,} bytes of records" in box
        assert f"<code>{sums.checksum}</code>" in box
    assert report.result.source.checksum != report.result.target.checksum
    tables = text.split('<table class="cards">')[1:]
    assert len(tables) == 3
    for table in tables:
        head, _, body = table.partition("</table>")[0].partition("</thead>")
        columns = re.findall(r"<th[^>]*>([^<]+)</th>", head)
        for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL):
            assert re.findall(r'data-label="([^"]+)"', row) == columns


def test_the_page_is_whole_offline_and_escapes_what_comes_from_the_store(made: Made) -> None:
    evil = "<script>alert(1)</script>&\"'"
    unit = made.unit(QUEUE, 0)
    made.put_unit(QueueKey(evil, 0), 0, unit)
    made.delete_units(QUEUE, range(4, 6))
    made.verify()
    text = made.space.report_page.read_text()
    parser = _Strict()
    parser.feed(text)
    assert not parser.open
    assert not parser.links
    assert parser.seen.isdisjoint({"script", "link", "img", "iframe"})
    assert "url(" not in text
    assert "@import" not in text
    assert "<h1>Different: 2 of 21 queues</h1>" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#34;&#39;" in text
    assert "4 to 5" in text
    for each in VerifyReport.model_validate_json(made.space.report.read_text()).result.counts:
        assert f'<td data-label="Kind">{each.value}</td>' in text


def test_the_page_of_an_equal_store_says_so_first(made: Made) -> None:
    made.verify()
    text = made.space.report_page.read_text()
    assert "<h1>Equal: no difference in 2,000 units of 20 queues</h1>" in text
    assert "What differs" not in text
    assert made.plan.digest in text


# ---- the command


def test_the_command_prints_the_findings_and_fails_on_a_difference(
    made: Made, cli: typer.Typer
) -> None:
    words = ["migrate", "verify", str(made.root), "--master", "none"]
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, "equal" in done.stdout) == (0, True)
    made.delete_units(QUEUE, range(7, 8))
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 1
    assert "hole" in done.stdout
    assert str(made.space.report_page) in done.stderr
    done = CliRunner().invoke(cli, [*words, "--output", "json"])
    assert VerifyReport.model_validate_json(done.stdout).result.counts == {DifferenceKind.HOLE: 1}


def test_the_command_prints_the_schema(cli: typer.Typer) -> None:
    done = CliRunner().invoke(cli, ["migrate", "verify", "--schema"])
    assert (done.exit_code, done.stdout) == (0, report_schema())


# ---- on Spark, and in other processes


def test_on_spark_the_result_is_that_of_plain_tasks(
    golden: Golden, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        made = migrate(golden("basic-default"), "rocksdb", patch)
        made.delete_units(QUEUE, range(7, 9))
        plain = made.verify(range_units=300)
    assert spark.version
    report = verify_migration(made.root, master="local[2]", range_units=300)
    assert report.tasks > 1
    assert report.result == plain.result
    assert report.result.counts == {DifferenceKind.HOLE: 2}
