"""``cqstore ab live``: what it makes of a mirror's files, made by hand and by a real store."""

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqstore.ab.commands import app
from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import Outcome as Said
from cqstore.ab.live.live import live_result
from cqstore.ab.mirror import mirror as mirror_module
from cqstore.ab.mirror import mirror_figures as figures_module
from cqstore.ab.mirror.mirror_figures import HOUR_SECONDS, AnswerCost, MirrorFigures
from cqstore.ab.mirror.mismatches import Mismatch, MismatchJournal
from cqstore.ab.mirror.verdict import ReadOutcome
from cqstore.ab.results.result_file import read_result, write_result
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreConfigError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from tests.kit.commands import cqstore
from tests.kit.double_write import StoredOffsets, refuse
from tests.kit.mirrored import by_hand, drive, mirror_of, open_mirrored
from tests.kit.tree import unchanged

HOURS = 24
READS = 200


def week(root: Path, monkeypatch: pytest.MonkeyPatch, slower: float) -> None:
    """Make the files of a mirror by hand: the other side takes ``slower`` times as long."""
    draw, now = random.Random(1), 1_800_000_000
    monkeypatch.setattr(figures_module.time, "time", lambda: now)  # type: ignore[attr-defined]
    figures = MirrorFigures(StorePaths(root).ab_figures)
    for _ in range(HOURS):
        pace = draw.uniform(0.8, 1.2)
        for _ in range(READS):
            taken = {}
            for side, times in (("file", 1.0), ("file again", 1.0), ("rocksdb", slower)):
                seconds = 2e-5 * pace * times * draw.lognormvariate(0, 0.3)
                taken[side] = AnswerCost(seconds, seconds / 2)
            figures.add_alike("pull", taken, 32)
            figures.count("pull", ReadOutcome.SAME)
        now += HOUR_SECONDS
    figures.count("pull", ReadOutcome.EXPLAINED)
    figures.count("pull", ReadOutcome.UNSETTLED)
    figures.save(3)


@pytest.mark.parametrize(("slower", "said"), [(1.0, Said.SAME), (1.3, Said.WORSE)])
def test_hours_of_a_running_store_are_judged_as_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slower: float, said: Said
) -> None:
    week(tmp_path, monkeypatch, slower)
    result = live_result(tmp_path, ["x"])
    unknown = result.store.model_dump(exclude={"root"})  # the store is not opened for this
    assert not any(unknown.values())
    assert result.store.root == str(tmp_path)
    assert [side.name for side in result.sides] == ["file", "rocksdb", "file again"]
    assert result.sides[2].twin_of == "file"
    (workload,) = result.workloads
    assert {turn.number for turn in workload.rounds} == set(range(HOURS))
    assert {turn.operations for turn in workload.rounds} == {READS}
    assert workload.item == "units"
    assert workload.answers.compared == HOURS * READS + 1
    assert "3 reads were not mirrored" in " ".join(result.not_measured)
    assert "1 reads differed, and no moment" in " ".join(result.not_measured)
    judgement = judge(result)
    assert judgement.answers.status == "same"
    (reported,) = judgement.workloads[0].sentences
    assert reported.outcome is said, reported
    (note,) = judgement.notes  # a noise floor was measured
    assert note.startswith("Each side was one process.")
    latency = next(
        each
        for each in judgement.workloads[0].comparisons
        if (each.figure, each.side) == ("service_p50", "rocksdb")
    )
    assert latency.ratio == pytest.approx(slower, rel=0.05)


def test_two_weeks_are_compared_by_their_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, slower in (("a", 1.0), ("b", 1.5)):
        (tmp_path / name).mkdir()
        week(tmp_path / name, monkeypatch, slower)
        write_result(tmp_path / f"{name}.json", live_result(tmp_path / name, ["x"]))
    done = CliRunner().invoke(
        app, ["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--output", "json"]
    )
    assert done.exit_code == 0, done.output
    printed_output = json.loads(done.stdout)
    assert printed_output["cannot"] == []
    assert printed_output["circumstances"] == [
        f"store: {tmp_path / 'a'} in A, {tmp_path / 'b'} in B"
    ]
    outcomes = {each["side"]: each for each in printed_output["changes"]}
    assert outcomes["file"]["outcome"] == Said.SAME.value
    assert outcomes["rocksdb"]["outcome"] == Said.WORSE.value
    assert outcomes["rocksdb"]["ratio"] == pytest.approx(1.5, rel=0.1)
    judged = tmp_path / "judged.json"
    judged.write_text(judge(read_result(tmp_path / "a.json")).model_dump_json())
    refused = CliRunner().invoke(app, ["compare", str(judged), str(tmp_path / "b.json")])
    assert isinstance(refused.exception, StoreConfigError)
    assert "give the file of --result" in str(refused.exception)


def test_a_difference_is_told_above_all_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    week(tmp_path, monkeypatch, 1.0)
    figures = MirrorFigures(StorePaths(tmp_path).ab_figures)
    figures.load()
    for _ in range(5):
        figures.count("pull", ReadOutcome.DIFFERENT)
    figures.save(0)
    found = Mismatch(
        1.8e9, "pull", QueueKey("orders", 3), {"offset": 4, "count": 6}, 5, 999,
        {"file": "unit 5: phy offset 999, size 10, tags code 0", "rocksdb": "unit 5 is missing"},
        "rocksdb",
    )  # fmt: skip
    MismatchJournal(StorePaths(tmp_path).ab_differences).add(found)
    result = live_result(tmp_path, [])
    judgement = judge(result)
    assert (judgement.answers.status, judgement.answers.different) == ("different", 5)
    (reported,) = judgement.answers.first
    assert reported.operation == {
        "op": "pull", "topic": "orders", "queueId": 3, "offset": 4, "count": 6, "queueOffset": 5,
        "phyOffset": 999, "wrongByTheLog": "rocksdb", "time": "2027-01-15T08:00:00+00:00",
    }  # fmt: skip
    assert reported.answers == found.answers
    assert "4 different answers are only counted" in " ".join(result.not_measured)


def test_the_side_that_is_read_most_is_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a step to another state there are hours in which the other one was read."""
    now = 1_800_000_000
    monkeypatch.setattr(figures_module.time, "time", lambda: now)  # type: ignore[attr-defined]
    figures = MirrorFigures(StorePaths(tmp_path).ab_figures)
    for hour in range(5):
        read, other = ("file", "rocksdb") if hour < 2 else ("rocksdb", "file")
        for _ in range(10):
            taken = {side: AnswerCost(1e-5, 1e-5) for side in (read, read + " again", other)}
            figures.add_alike("maxOffset", taken, 1)
            figures.count("maxOffset", ReadOutcome.SAME)
        now += HOUR_SECONDS
    figures.save(0)
    result = live_result(tmp_path, [])
    assert [side.name for side in result.sides] == ["rocksdb", "file", "rocksdb again"]
    (workload,) = result.workloads
    assert workload.item == "answers"
    assert len({turn.number for turn in workload.rounds}) == 3
    assert len(workload.rounds) == 9


def test_what_cannot_be_told_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RefusedStoreError, match="no such folder"):
        live_result(tmp_path / "none", [])
    assert not (tmp_path / "none").exists()
    with pytest.raises(RefusedStoreError, match="no store here"):
        live_result(tmp_path, [])
    figures = MirrorFigures(StorePaths(tmp_path).ab_figures)
    figures.save(0)
    with pytest.raises(RefusedStoreError, match="no reads of this store have been mirrored"):
        live_result(tmp_path, [])
    figures.count("pull", ReadOutcome.SAME)
    figures.save(0)
    with pytest.raises(RefusedStoreError, match="too few reads"):
        live_result(tmp_path, [])
    StorePaths(tmp_path).ab_figures.write_bytes(b"x")
    with pytest.raises(CorruptionError):
        live_result(tmp_path, [])


@pytest.mark.slow
def test_a_running_store_is_reported_and_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    monkeypatch.setattr(mirror_module, "MAX_WAITING", 1 << 20)
    root, out = tmp_path / "store", tmp_path / "result.json"
    cqstore("ab", "live", root, code=2)
    with open_mirrored(root) as store:
        StoredOffsets().put(store, 50)
        for number in range(1200):
            store.get_message("t", number % 5, number % 7)
        drive(store)
        save(store)
        done = cqstore("ab", "live", root, "--html", tmp_path / "page.html", "--result", out)
        assert "All answers were the same" in done.stdout
        assert f"cqstore: result written to {out}\n" in done.stderr
        assert f"cqstore: HTML report written to {tmp_path / 'page.html'}\n" in done.stderr
        for limit in read_result(out).not_measured:
            assert f"cqstore: {limit}\n" in done.stderr
        with monkeypatch.context() as patch:
            refuse(patch, "rocksdb", "read_units")
            store.get_message("t", 1, 2)
            drive(store)
        save(store)
        while_open = json.loads(cqstore("ab", "live", root, "--output", "json", code=1).stdout)
    with unchanged(root):
        printed_output = json.loads(cqstore("ab", "live", root, "--output", "json", code=1).stdout)
    assert printed_output == while_open
    assert printed_output["answers"]["status"] == "different"
    assert printed_output["answers"]["first"][0]["answers"]["rocksdb"] == (
        "cannot be read: ConsumeQueueError"
    )
    assert read_result(out).kind == "live"
    assert str(root) in (tmp_path / "page.html").read_text()


def save(store: MessageStore) -> None:
    mirror_of(store)._figures.save(0)
