"""Two logs compared: where they part, what lies behind, and what else differs; nothing changes."""

import itertools
import json
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cqstore.replication.commands import ha_app
from cqstore.replication.ha import diverged_tail as tails
from cqstore.replication.ha.ha_check import checked
from cqstore.replication.ha.logs import compare_logs
from cqstore.store.errors import RefusedStoreError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.log_bytes import log_of
from tests.kit.parted import CONFIG, grow, log_in, parted
from tests.kit.quiet_config import HOUR_MS
from tests.kit.tree import tree_digest, unchanged
from tests.migration.made_log import Made, make_log


def check(*words: object) -> Result:
    return CliRunner().invoke(ha_app, ["check", *map(str, words)])


def found_by(*words: object, code: int) -> dict[str, object]:
    done = check(*words, "--output", "json")
    assert done.exit_code == code, done.output
    found: dict[str, object] = json.loads(done.stdout)
    return found


def log_files(folder: Path, log: bytes, begin: int = 0, file_size: int = 4096) -> CommitLog:
    """Lay ``log`` down in files and open them, as a log that ends with it."""
    folder.mkdir()
    for at in range(0, len(log), file_size):
        path = folder / f"{begin + at:020d}"
        path.write_bytes(log[at : at + file_size].ljust(file_size, b"\0"))
    config = CONFIG.model_copy(update={"mapped_file_size_commit_log": file_size})
    made = CommitLog([folder], config, read_only=True)
    made.load()
    made.set_end(begin + len(log))
    return made


# ---- the bytes


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[int]]:
    """A log of several files, and where its records begin, blank ones too."""
    root = tmp_path_factory.mktemp("written") / "store"
    grow(root, 100)
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        blanks: list[tuple[int, int]] = []
        starts = [record.phy_offset for record in components_of(store).log.scan(0, blanks=blanks)]
        return log_of(store), sorted([*starts, *(at for at, _ in blanks)])


def test_any_byte_that_differs_is_found_with_its_record(
    written: tuple[bytes, list[int]], tmp_path: Path
) -> None:
    log, starts = written
    assert len(log) > 3 * 4096
    assert {4096, 8192} < {*starts}
    compared = 0
    for number, at in enumerate([*range(0, len(log), 173), *starts, 4095, len(log) - 1]):
        other = bytearray(log)
        other[at] ^= 0x20
        folder = tmp_path / str(number)
        folder.mkdir()
        one = log_files(folder / "a", log)
        common = compare_logs(one, log_files(folder / "b", bytes(other)))
        assert (common.differs_at, common.end) == (at, max(s for s in starts if s <= at))
        assert common == compare_logs(log_files(folder / "c", bytes(other)), one)
        shutil.rmtree(folder)
        compared += 1
    assert compared > 80


def test_the_last_bytes_count_too(written: tuple[bytes, list[int]], tmp_path: Path) -> None:
    log, _ = written
    for size in range(5000, 5008):  # words are compared, and what is left of them
        other = log[: size - 1] + bytes([log[size - 1] ^ 1])
        folder = tmp_path / str(size)
        folder.mkdir()
        common = compare_logs(log_files(folder / "a", log[:size]), log_files(folder / "b", other))
        assert common.differs_at == size - 1


def test_logs_that_begin_and_end_elsewhere_share_what_both_have(
    written: tuple[bytes, list[int]], tmp_path: Path
) -> None:
    log, starts = written
    whole = log_files(tmp_path / "whole", log)
    for begin, end in itertools.product((0, 4096, 8192), (starts[-1], starts[-9], 8192, 4096)):
        if begin < end:
            part = log_files(tmp_path / f"{begin}-{end}", log[begin:end], begin)
            common = compare_logs(whole, part)
            assert (common.compared, common.differs_at) == (range(begin, end), None)
            assert (common.end, common.is_empty) == (end, False)
    behind = log_files(tmp_path / "behind", log[:4096], 1 << 20)
    common = compare_logs(whole, behind)
    assert (common.is_empty, list(common.compared)) == (True, [])


def test_logs_in_files_of_other_sizes_part_at_the_first_end_of_a_file(
    written: tuple[bytes, list[int]], tmp_path: Path
) -> None:
    log, _ = written
    longer = CONFIG.model_copy(update={"mapped_file_size_commit_log": 8192})
    with MessageStore.open(tmp_path / "longer", longer) as store:
        store.append_to_commit_log(0, log[: log.index(b"\xcb\xd4\x31\x94") - 4])
        assert store.put_message(Message("other", b"x" * 3000)).ok
    with MessageStore.open(tmp_path / "longer", read_only=True) as store:
        other = components_of(store).log
        assert (other.files.file_size, other.max_phy_offset() > 4096) == (8192, True)
        common = compare_logs(log_files(tmp_path / "a", log), other)
    assert common.end == log.index(b"\xcb\xd4\x31\x94") - 4


def test_a_blank_record_that_differs_behind_its_head_is_told_as_a_difference(
    written: tuple[bytes, list[int]], tmp_path: Path
) -> None:
    """No reader reads those bytes, but a follower compares them."""
    log, starts = written
    other = bytearray(log)
    blank = max(start for start in starts if start < 4096)
    assert blank + 8 < 4095
    other[4095] = 1
    one, two = log_files(tmp_path / "a", log), log_files(tmp_path / "b", bytes(other))
    assert compare_logs(one, two).end == blank


# ---- what lies behind


def test_a_tail_tells_its_place_at_every_so_many_records(
    written: tuple[bytes, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = written
    one, places = log_files(tmp_path / "log", log), list[int]()
    records = [record.phy_offset for record in one.scan(0)]
    monkeypatch.setattr(tails, "_TICKS", 7)
    assert tails.tail_of(one, records[10], places.append).records == 90
    assert places == records[16::7]


@pytest.mark.parametrize("times", [[30, 10, 50, 20], [-3, -9, -5], [0], [7, 0]])
def test_a_tail_tells_its_earliest_and_latest_store_time(tmp_path: Path, times: list[int]) -> None:
    make_log(tmp_path, [Made("t", 0, time, b"x") for time in times], 4096)
    with closing(CommitLog([tmp_path / "commitlog"], CONFIG, read_only=True)) as log:
        log.load()
        log.set_end(log.files.files()[-1].file_from_offset + 4096)
        tail = tails.tail_of(log, 0)
    assert (tail.records, tail.first_stored, tail.last_stored) == (
        len(times), min(times), max(times),
    )  # fmt: skip


def test_a_log_has_something_from_its_begin_to_its_end(
    written: tuple[bytes, list[int]], tmp_path: Path
) -> None:
    log, starts = written
    whole = log_files(tmp_path / "whole", log)
    part = log_files(tmp_path / "part", log[8192:], 8192)
    nothing = {"what": "end of the log"}
    assert tails.place_of(part, starts[0]) == tails.place_of(part, 8191) == nothing
    assert tails.place_of(part, len(log)) == tails.place_of(whole, len(log)) == nothing
    for one, at in ((whole, 0), (whole, 8192), (part, 8192), (part, starts[-1])):
        found = tails.place_of(one, at)
        assert (found["what"], found["bytes"]) == ("a record", log[at : at + 32].hex())
    blank = max(start for start in starts if start < 4096)
    size = 4096 - blank
    assert tails.place_of(whole, blank) == {
        "what": "a blank record", "size": size, "bytes": log[blank : blank + min(32, size)].hex(),
    }  # fmt: skip
    inside = tails.place_of(whole, starts[1] + 3)
    assert (inside["what"], inside["bytes"]) == ("not a record", log[starts[1] + 3 :][:32].hex())
    assert str(starts[1] + 3) in str(inside["why"])


def test_a_tail_names_the_topics_with_most_records_and_counts_the_others() -> None:
    few = tails.OwnRecords(5, 9, topics=Counter({"a": 1, "b": 2})).as_json()
    assert (few["bytes"], few["topics"], few["otherTopics"]) == (4, {"b": 2, "a": 1}, 0)
    assert few["damage"] is None
    many = Counter({f"t{number}": number for number in range(1, tails.MAX_TOPICS + 3)})
    reported = tails.OwnRecords(0, 9, topics=many).as_json()
    del many["t1"], many["t2"]
    assert (reported["topics"], reported["otherTopics"]) == (many, 2)


# ---- two stores


@pytest.mark.parametrize("backend", backend_names())
def test_a_former_master_is_told_record_by_record(tmp_path: Path, backend: str) -> None:
    one, other, end = parted(tmp_path, 30, 5, 40, backend)
    before = tree_digest(one), tree_digest(other)
    found = found_by(one, other, code=1)
    assert (tree_digest(one), tree_digest(other)) == before
    first, second = log_in(one), log_in(other)
    differs_at = next(at for at in itertools.count(end) if first[at] != second[at])
    assert (found["compared"], found["commonEnd"]) == ([0, len(first)], end)
    divergence = found["divergence"]
    assert isinstance(divergence, dict)
    assert (divergence["phyOffset"], divergence["firstByte"]) == (end, differs_at)
    for side, topic, log in (("a", "former", first), ("b", "new", second)):
        place = divergence[side]
        assert (place["topic"], place["queueId"], place["queueOffset"]) == (topic, 0, 0)
        assert place["bytes"] == log[end : end + 32].hex()
    behind = found["own"]
    assert isinstance(behind, dict)
    assert behind["a"]["topics"] == {"former": 5}
    assert (behind["b"]["records"], behind["b"]["topics"]) == (40, {"new": 40})
    assert behind["b"]["bytes"] == len(second) - end
    assert behind["a"]["firstStored"] <= behind["a"]["lastStored"] <= behind["b"]["firstStored"]
    done = check(one, other)
    assert f"the logs diverge at {end}" in done.stderr
    assert "former 5" in done.stdout
    assert "new/0/0" in done.stdout


def test_a_log_that_lags_has_not_parted(tmp_path: Path) -> None:
    one, other, end = parted(tmp_path, 20, 0, 7)
    found = found_by(one, other, code=0)
    assert (found["commonEnd"], found["divergence"], found["differences"]) == (end, None, [])
    assert "7" in check(other, one).stdout
    shutil.rmtree(other)
    shutil.copytree(one, other)
    done = check(one, other)
    assert (done.exit_code, "where both logs end" in done.stderr) == (0, True)


def test_logs_that_part_in_the_first_record_and_at_the_begin_of_a_file_are_told(
    tmp_path: Path,
) -> None:
    grow(tmp_path / "a", 3, "a")
    grow(tmp_path / "b", 3, "b")
    found = found_by(tmp_path / "a", tmp_path / "b", code=1)
    assert found["commonEnd"] == 0
    one, other, _ = parted(tmp_path, 0, 0, 0)
    with MessageStore.open(one, CONFIG) as store:
        while store.max_phy_offset() < 4096:
            store.put_message(Message("t", b"x" * 500))
    shutil.rmtree(other)
    shutil.copytree(one, other)
    first = log_in(one)[:4096]
    with MessageStore.open(tmp_path / "cut", CONFIG) as store:
        store.append_to_commit_log(0, first)
        assert store.max_phy_offset() == 4096
        store.put_message(Message("other", b"y" * 100))
    assert found_by(one, tmp_path / "cut", code=1)["commonEnd"] == 4096


@pytest.mark.parametrize("backend", backend_names())
def test_records_that_the_queues_lack_are_told_with_equal_ends(
    tmp_path: Path, backend: str
) -> None:
    """As a slave whose dispatch stopped: its log is the master's to the last byte."""
    one, other, end = parted(tmp_path, 30, 0, 9, backend)
    shutil.rmtree(one / "commitlog")
    shutil.copytree(other / "commitlog", one / "commitlog")
    with unchanged(one):
        found = found_by(one, other, code=1)
    side = found["a"]
    assert isinstance(side, dict)
    assert (side["end"], found["divergence"]) == (found["commonEnd"], None)
    assert side["undispatched"] == {"from": end, "records": 9, "topic": "new", "queueId": 0}
    assert "9 records are missing from their queues" in check(one, other).stderr
    with MessageStore.open(one, CONFIG) as store:  # what it says helps
        assert store.max_offset("new", 0) == 5
    assert found_by(one, other, code=0)["differences"] == []


def test_queues_that_are_damaged_are_told(tmp_path: Path) -> None:
    one, other, _ = parted(tmp_path, 30, 0, 0, "file")
    path = max((one / "consumequeue" / "both" / "1").iterdir())
    path.write_bytes(bytes(path.stat().st_size))
    found = found_by(one, other, code=1)
    assert "1 queues are damaged" in str(found["differences"])


def test_a_store_that_somebody_writes_is_compared(tmp_path: Path) -> None:
    one, other, end = parted(tmp_path, 30, 0, 0)
    with MessageStore.open(other, CONFIG) as store:
        for number in range(40):
            assert store.put_message(Message("later", b"x" * number)).ok
            if number % 10 == 0:
                with checked(one, other, CONFIG) as found:
                    assert (found.common.end, list(found.differences())) == (end, [])
                    assert found.tails[1].records == number + 1


def test_units_that_a_broker_has_in_memory_do_not_count_as_lacking(tmp_path: Path) -> None:
    one, other, end = parted(tmp_path, 30, 0, 0, "rocksdb")
    config = CONFIG.model_copy(
        update={
            "flush_interval_consume_queue": HOUR_MS,
            "flush_consume_queue_thorough_interval": HOUR_MS,
            "flush_interval_commit_log": HOUR_MS, "flush_commit_log_thorough_interval": HOUR_MS,
        }
    )  # fmt: skip
    with MessageStore.open(other, config) as store:
        assert store.put_message(Message("later", b"x")).ok
        assert store.get_message("later", 0, 0).messages()  # who reads has all handed on
        with checked(one, other, CONFIG) as found:
            assert (found.common.end, list(found.differences())) == (end, [])
            assert found.tails[1].records == 1


def test_a_log_that_the_settings_name_is_not_compared_with_itself(tmp_path: Path) -> None:
    one, other, _ = parted(tmp_path, 30, 5, 40)
    conf, log = tmp_path / "broker.conf", one / "commitlog"
    conf.write_text(f"storePathCommitLog={log}\n")
    for pair in ((one, other), (other, one)):
        done = check(*pair, "--config", conf)
        assert isinstance(done.exception, RefusedStoreError)
        assert "have the same commit log" in str(done.exception)
        assert str(log) in str(done.exception)


@pytest.mark.parametrize("is_below", [True, False])
def test_a_log_that_the_settings_name_is_that_of_their_own_store(
    tmp_path: Path, *, is_below: bool
) -> None:
    one, other, end = parted(tmp_path, 30, 5, 40)
    logs, log = (len(log_in(one)), len(log_in(other))), one / "commitlog"
    if not is_below:
        log = log.rename(tmp_path / "elsewhere")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={one}\nstorePathCommitLog={log}\nlistenPort\n")
    for pair, ends in (((one, other), logs), ((other, one), logs[::-1])):
        done = check(*pair, "--config", conf, "--output", "json")
        assert done.exit_code == 1, done.output
        found = json.loads(done.stdout)
        assert (found["a"]["end"], found["b"]["end"], found["commonEnd"]) == (*ends, end)
        assert done.stderr.count("has no '='") == 1


def test_what_is_no_pair_of_stores_is_refused(tmp_path: Path) -> None:
    grow(tmp_path / "a", 3)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with (
        pytest.raises(RefusedStoreError, match="both sides are the same"),
        checked(tmp_path / "a", tmp_path / "link"),
    ):
        pass
    (tmp_path / "empty").mkdir()
    with (
        pytest.raises(RefusedStoreError, match="no store here"),
        checked(tmp_path / "a", tmp_path / "empty"),
    ):
        pass


def test_damage_is_told_with_the_side_that_has_it(tmp_path: Path) -> None:
    one, other, end = parted(tmp_path, 30, 6, 6)
    path = max((one / "commitlog").iterdir())
    with MessageStore.open(one, CONFIG, read_only=True) as store:
        last = [record.phy_offset for record in components_of(store).log.scan(end)][-2]
    with path.open("r+b") as file:
        file.seek(last % 4096 + 4)
        file.write(b"\xff")
    found = found_by(one, other, code=1)
    assert found["commonEnd"] == end
    side = found["a"]
    assert isinstance(side, dict)
    assert str(last) in str(side["damage"])


# ---- tables of the broker


def tables(root: Path, **files: str) -> None:
    (root / "config").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / "config" / f"{name}.json").write_text(text)


def test_tables_that_differ_are_told_by_name(tmp_path: Path) -> None:
    one, other, _ = parted(tmp_path, 5, 0, 0)
    tables(one, topics='{"topicConfigTable":{"a":{"perm":6},"b":{"perm":6}},"dataVersion":{}}')
    assert found_by(one, other, code=0)["metadata"] == []  # a follower has none
    tables(other, topics='{"topicConfigTable":{"a":{"perm":4},"b":{"perm":6},"c":{}}}')
    # As RocketMQ writes it: bare numbers for keys.
    tables(one, consumerOffset='{"offsetTable":{"a@g":{0:7,1:3},"b@,1:{":{0:1},"of@nothing":{}}}')
    tables(other, consumerOffset='{"offsetTable":{"a@g":{0:9,1:3},"b@,1:{":{0:1}}}')
    found = found_by(one, other, code=1)
    assert found["metadata"] == [
        {"table": "topics", "name": "a", "a": {"perm": 6}, "b": {"perm": 4}},
        {"table": "topics", "name": "c", "a": None, "b": {}},
        {"table": "offsets", "name": "a@g", "a": {"0": 7}, "b": {"0": 9}},
    ]
    assert "3 entries of the brokers' tables differ: topics: a;" in check(one, other).stderr
    tables(other, consumerOffset="{no JSON")
    done = check(one, other)
    assert (done.exit_code, "a broker cannot read this file" in done.stderr) == (1, True)


def test_settings_of_a_slave_are_taken(tmp_path: Path) -> None:
    one, other, _ = parted(tmp_path, 5, 0, 0)
    config = StoreConfig.from_mapping({"brokerRole": "SLAVE"})
    with checked(one, other, config) as found:
        assert list(found.differences()) == []
