"""``cqstore meta convert``: every field comes along, the old form is kept, a kill loses neither."""

import gc
import json
import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import cqstore.broker.metadata
from cqstore.broker.commands import meta_app as app
from cqstore.broker.metadata import convert as conversion
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.locations import names_of
from cqstore.broker.metadata.model import BrokerMetadata, Form, Table
from cqstore.broker.metadata.placing import is_placing
from cqstore.broker.metadata.writing import differences, write_form
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreLockedError
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.paths import StorePaths
from tests.kit import interrupts
from tests.kit.call_order import Call, CallOrder
from tests.kit.interrupts import IGNORED, first_places, run_interrupted
from tests.kit.killed_conversion import changes_until_killed
from tests.kit.metadata_forms import databases, the_one
from tests.kit.mutations import in_time
from tests.kit.tree import unchanged

SECONDS = 60
MOST = 250
DROP = ["--drop", "forbidden", "--drop", "pull-offsets"]
FINISHED = "an earlier conversion, which was interrupted, is finished"
PAIRS = [(one, other) for one in Form for other in Form if one is not other]


def call(root: Path, to: Form, *words: str) -> Result:
    return CliRunner().invoke(app, ["convert", str(root), "--to", to.value, *words])


def done(root: Path, to: Form, *words: str) -> dict[str, Any]:
    result = call(root, to, "--yes", "--output", "json", *words)
    assert result.exit_code == 0, (result.output, result.exception)
    row: dict[str, Any] = json.loads(result.stdout)
    return row


def refused(root: Path, to: Form, *words: str) -> str:
    with unchanged(root):
        result = call(root, to, "--yes", *words)
        assert isinstance(result.exception, RefusedStoreError), result.output
    return str(result.exception)


def expected_from(found: BrokerMetadata, to: Form) -> BrokerMetadata:
    """Return what is to be in the form ``to``, said once more and without the code under test."""
    versions = dict(found.versions)
    if to is Form.JSON:
        versions = {
            table: each._replace(counter=each.counter or 1) for table, each in versions.items()
        }
    return replace(found, versions=versions, forbidden={} if to is Form.V2 else found.forbidden,
                   pull_offsets={} if to is not Form.V2 else found.pull_offsets)  # fmt: skip


@pytest.mark.parametrize(("form", "to"), PAIRS)
def test_every_field_comes_along_and_the_old_form_is_kept(
    stores: Path, form: Form, to: Form
) -> None:
    root = stores / form
    delays = root / "config" / "delayOffset.json"
    delays.write_text('{"offsetTable":{3:120}}')
    found = the_one(root)
    old = {name: root / "config" / name for name in names_of(form)}
    before = {name: _bytes(path) for name, path in old.items() if path.exists()}
    row = done(root, to, *DROP)
    back = the_one(root)
    assert back.form is to
    missing_versions = back.versions.keys() - found.versions.keys()
    assert missing_versions <= ({Table.OFFSETS} if to is Form.JSON else set())
    expected = expected_from(found, to)
    expected.versions |= {table: back.versions[table] for table in missing_versions}
    assert not list(differences(expected, back))
    assert {name: _bytes(Path(row["movedTo"]) / name) for name in before} == before
    assert delays.read_text() == '{"offsetTable":{3:120}}'
    left = {path.name for path in (root / "cqstore").iterdir()}
    assert left == {"replaced"}


def _bytes(path: Path) -> dict[str, bytes] | bytes:
    if path.is_dir():
        return {each.name: each.read_bytes() for each in path.iterdir()}
    return path.read_bytes()


def test_there_and_back_twice_is_what_it_was(stores: Path) -> None:
    root = stores / Form.JSON
    before = the_one(root)
    for to in (Form.V1, Form.JSON, Form.SINGLE, Form.JSON):
        done(root, to)
    after = the_one(root)
    assert not list(differences(expected_from(before, Form.JSON), after))
    assert len(list((root / "cqstore" / "replaced").iterdir())) == 4


def test_a_file_that_counts_no_change_gets_one(stores: Path) -> None:
    done(stores / Form.V1, Form.JSON)  # which has no version of offsets at all
    content = json.loads((stores / Form.V1 / "config" / "consumerOffset.json").read_bytes())
    assert content["dataVersion"]["counter"] == 1
    assert content["dataVersion"]["timestamp"] > 1 << 40


@pytest.mark.parametrize("words", [[], ["--lmq"]])
@pytest.mark.parametrize("had", [False, True])
def test_the_file_of_light_queues_comes_where_it_is_asked_for_or_was(
    stores: Path, words: list[str], *, had: bool
) -> None:
    config = stores / Form.V1 / "config"
    if had:  # a broker with `enableLmq` has left it beside
        (config / "lmqConsumerOffset.json").write_text('{"offsetTable":{}}')
    done(stores / Form.V1, Form.JSON, "--from", Form.V1, *words)
    assert (config / "lmqConsumerOffset.json").exists() == (had or bool(words))


def test_without_yes_nothing_is_changed(stores: Path) -> None:
    with unchanged(stores / Form.JSON):
        result = call(stores / Form.JSON, Form.V1, "--output", "json")
        assert result.exit_code == 0
        assert result.stderr == "cqstore: nothing was changed (use --yes to apply)\n"
        row = json.loads(result.stdout)
        assert (row["from"], row["to"], row["offsets"], row["done"]) == ("json", "v1", 38, False)


@pytest.mark.parametrize(
    ("to", "setting"),
    [
        (Form.JSON, "out storeType=defaultRocksDB"),
        (Form.V1, " storeType=defaultRocksDB"),
        (Form.SINGLE, " storeType=defaultRocksDB and useSingleRocksDBForAllConfigs=true"),
        (Form.V2, " configManagerVersion=v2"),
    ],
)
def test_what_has_been_done_names_the_setting_that_reads_it(
    stores: Path, to: Form, setting: str
) -> None:
    root = stores / (Form.V1 if to is Form.JSON else Form.JSON)
    said = call(root, to, "--yes", *DROP).stderr
    assert said == f"cqstore: a broker with{setting} reads this form\n"
    again = call(root, to, "--yes")
    assert again.stdout == ""
    assert f"nothing to do: the metadata is already in the form {to} only" in again.stderr


def test_each_rename_is_on_disk_before_the_next_and_all_of_them_before_the_journal_goes(
    stores: Path,
) -> None:
    """The new name first: after a power failure a file may have both names, and never none."""
    order = CallOrder(stores / Form.V1)
    with order.watching():
        done(stores / Form.V1, Form.JSON)
    moves = {
        at: old
        for at, old in order.renamed.items()
        if Path(old).parent != Path(order.made[at][1]).parent
    }
    assert len(moves) == 2 * 3 + 3  # three files and their backups come, three databases go
    (begun,) = order.places("rename", "placing-metadata")
    assert order.made[begun + 1] == ("sync", "cqstore")
    assert begun < min(moves)
    for at, old in moves.items():
        new = order.made[at][1]
        assert order.made[at + 1 : at + 3] == [
            ("sync", str(Path(new).parent)), ("sync", str(Path(old).parent)),
        ]  # fmt: skip
    assert order.made[max(moves) + 3 :] == [
        ("remove", "cqstore/new-metadata/config"), ("remove", "cqstore/new-metadata"),
        ("sync", "cqstore"), ("remove", "cqstore/placing-metadata"), ("sync", "cqstore"),
    ]  # fmt: skip


def two_forms(stores: Path) -> Path:
    """Return a store of JSON whose RocksDB form is out of date."""
    root = stores / Form.JSON
    stale = the_one(stores / Form.V1)
    stale.offsets = {"orders1@billing1": {0: 1}}
    write_form(stale, Form.V1, stores / "stale")
    for each in databases(stores / "stale"):
        each.rename(root / "config" / each.name)
    return root


def test_of_several_forms_one_is_named_and_the_stale_one_replaced(stores: Path) -> None:
    root = two_forms(stores)
    (json_form, _) = read_forms(StorePaths(root))
    assert "--from" in refused(root, Form.V1)
    row = done(root, Form.V1, "--from", "json")
    assert the_one(root).offsets == json_form.offsets
    shutil.copytree(row["movedTo"], stores / "kept" / "config")
    kept = next(each for each in read_forms(StorePaths(stores / "kept")) if each.form is Form.V1)
    assert kept.offsets == {"orders1@billing1": {0: 1}}


def test_from_a_form_into_itself_only_the_others_move_away(stores: Path) -> None:
    root = two_forms(stores)
    before = {path.name: path.read_bytes() for path in (root / "config").glob("*.json*")}
    row = done(root, Form.JSON, "--from", "json")
    assert the_one(root).form is Form.JSON
    assert {path.name: path.read_bytes() for path in (root / "config").iterdir()} == before
    assert {path.name for path in Path(row["movedTo"]).iterdir()} == set(names_of(Form.V1))


def test_the_form_that_is_there_alone_needs_nothing(stores: Path) -> None:
    with unchanged(stores / Form.V2 / "config"):
        result = call(stores / Form.V2, Form.V2, "--yes")
        assert result.exit_code == 0


# ---- refused


def test_what_the_form_has_no_place_for_is_named(stores: Path) -> None:
    assert "billing1" in refused(stores / Form.JSON, Form.V2)
    (found,) = read_forms(StorePaths(stores / Form.V2))
    write_form(replace(found, offsets={}), Form.V2, stores / "pulls")
    assert "orders2@billing2" in refused(stores / "pulls", Form.JSON)


def test_damage_is_not_converted(stores: Path) -> None:
    path = stores / Form.JSON / "config" / "topics.json"
    path.write_bytes(path.read_bytes()[:99])  # its .bak is whole, and may be of yesterday
    assert "repair" in refused(stores / Form.JSON, Form.V1)


def test_a_field_that_no_other_form_has_is_named(stores: Path) -> None:
    path = stores / Form.JSON / "config" / "topics.json"
    content = path.read_text().replace('"topicConfigTable"', '"news":{"a":1},"topicConfigTable"', 1)
    path.write_text(content)
    assert "topics.json: news" in refused(stores / Form.JSON, Form.V1)


def test_two_files_of_offsets_that_differ_are_named(stores: Path) -> None:
    path = stores / Form.JSON / "config" / "lmqConsumerOffset.json"
    path.write_text('{"offsetTable":{"orders1@billing1":{0:7}},"lmqOffsetTable":{}}')
    assert "lmqConsumerOffset.json" in refused(stores / Form.JSON, Form.V1)
    result = CliRunner().invoke(app, [str(stores / Form.JSON), "--check", "--output", "jsonl"])
    assert "lmq-offsets-disagree" in result.stdout


@pytest.mark.parametrize("words", [[], ["--from", "v2"]])
def test_a_folder_without_such_metadata_is_refused(tmp_path: Path, words: list[str]) -> None:
    assert "no broker metadata found" in refused(tmp_path, Form.V1, *words)


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    result = call(tmp_path / "none", Form.V1, "--yes")
    assert isinstance(result.exception, RefusedStoreError)
    assert not (tmp_path / "none").exists()


def test_an_open_store_is_refused(stores: Path) -> None:
    paths = StorePaths(stores / Form.JSON)
    lock = StoreLock(paths)
    try:
        result = call(paths.root, Form.V1, "--yes")
    finally:
        lock.release()
    assert isinstance(result.exception, StoreLockedError)
    assert the_one(paths.root).form is Form.JSON


def test_what_reads_back_otherwise_is_not_put_in_place(
    stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def losing(found: BrokerMetadata, form: Form, root: Path, *, lmq: bool) -> None:
        less = replace(found, offsets=dict(list(found.offsets.items())[1:]))
        write_form(less, form, root, lmq=lmq)

    monkeypatch.setattr(conversion, "write_form", losing)
    with unchanged(stores / Form.JSON / "config"):
        result = call(stores / Form.JSON, Form.V1, "--yes")
        assert isinstance(result.exception, CorruptionError)
        assert "offsets differ" in str(result.exception)


@pytest.mark.parametrize("line", [b"", b"no line\n", b'{"moves":[]}\n'])
def test_a_damaged_journal_is_named(stores: Path, line: bytes) -> None:
    paths = StorePaths(stores / Form.JSON)
    paths.own.mkdir()
    paths.placing_metadata.write_bytes(line)
    with unchanged(paths.config):
        result = call(paths.root, Form.V1, "--yes")
        assert isinstance(result.exception, CorruptionError)
        assert result.exception.path == paths.placing_metadata


# ---- killed, or stopped by an exception between any two calls


@dataclass
class Interrupted:
    """A conversion in which the n-th change is not made: KeyboardInterrupt comes first."""

    stores: Path
    form: Form
    to: Form

    def __post_init__(self) -> None:
        self.golden, self.root = self.stores / self.form, self.stores / "copy"
        self.found = expected_from(the_one(self.golden), self.to)
        stale = replace(self.found, topics={}, offsets={"orders1@billing1": {0: 1}})
        write_form(replace(stale, pull_offsets={}), self.to, self.golden)  # to be replaced
        self.words = ["--from", self.form.value, *DROP, "--yes"]

    def begin(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.golden, self.root)

    def stopped_at(self, number: int) -> bool:
        """Return whether the call was stopped before its change ``number``."""
        order, made = CallOrder(self.root), 0

        def stop(call: Call) -> None:
            nonlocal made
            made += call[0] != "sync"
            if made == number:
                raise KeyboardInterrupt

        order.at_each = stop
        with order.watching():
            return call(self.root, self.to, *self.words).exit_code != 0

    def placed(self) -> bool:
        """Return whether the new form is in place and whole, and the journal still there."""
        found = read_forms(StorePaths(self.root))
        new = [each for each in found if each.form is self.to and not _unlike(self.found, each)]
        return bool(new) and is_placing(StorePaths(self.root))

    def check_one_form_is_whole(self, at: int) -> None:
        found = read_forms(StorePaths(self.root))
        assert [each.form for each in found if not _unlike(self.found, each)], at

    def check_converted(self, at: int) -> None:
        back = the_one(self.root)
        assert back.form is self.to, at
        assert not _unlike(self.found, back), at


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(("form", "to"), [(Form.JSON, Form.V1), (Form.V1, Form.JSON)])
def test_stopped_at_any_change_one_form_is_whole_and_the_next_call_goes_on(
    stores: Path, form: Form, to: Form, every: int
) -> None:
    conversion_of = Interrupted(stores, form, to)
    at, stopped = 1 - every, True
    while stopped:
        at += every
        conversion_of.begin()
        stopped = conversion_of.stopped_at(at)
        conversion_of.check_one_form_is_whole(at)
        if stopped:
            begun = is_placing(StorePaths(conversion_of.root))
            result = call(conversion_of.root, to, *conversion_of.words)
            assert result.exit_code == 0, at
            assert (f"{FINISHED}\n" in result.stderr) is begun, at
        conversion_of.check_converted(at)
    assert at > 15


def stopped_before_the_old_form_moved(stores: Path) -> Interrupted:
    """Return a conversion of JSON to RocksDB that was stopped with both in place."""
    stopped = Interrupted(stores, Form.JSON, Form.V1)
    at, forms = 0, list[Form]()
    while forms != [Form.JSON, Form.V1] or not stopped.placed():
        at += 1
        stopped.begin()
        assert stopped.stopped_at(at)
        forms = [each.form for each in read_forms(StorePaths(stopped.root))]
    return stopped


def test_an_interrupted_conversion_is_a_finding(stores: Path) -> None:
    stopped = stopped_before_the_old_form_moved(stores)
    result = CliRunner().invoke(app, [str(stopped.root), "--check", "--output", "jsonl"])
    assert result.exit_code == 1
    assert "conversion-unfinished" in result.stdout


def test_without_yes_an_interrupted_conversion_is_refused(stores: Path) -> None:
    stopped = stopped_before_the_old_form_moved(stores)
    with unchanged(stopped.root):
        result = call(stopped.root, Form.V1, "--from", "json")
        assert isinstance(result.exception, RefusedStoreError)


@pytest.mark.parametrize("writer", ["broker", "follower"])
def test_what_was_written_since_is_not_moved_away(stores: Path, writer: str) -> None:
    stopped = stopped_before_the_old_form_moved(stores)
    journal = StorePaths(stopped.root).placing_metadata
    if writer == "broker":  # whose lock file alone is to matter here
        os.utime(journal, (1 << 32, 1 << 32))
    config = stopped.root / "config"
    offsets = (config / "consumerOffset.json").read_text()
    newer = offsets.replace("800", "850")
    assert newer != offsets
    (config / "consumerOffset.json").write_text(newer)
    if writer == "broker":  # RocketMQ writes the lock file at each start
        os.utime(stopped.root / "lock", (1 << 30, 1 << 30))
    else:
        later = journal.stat().st_mtime_ns + 1
        os.utime(config / "consumerOffset.json", ns=(later, later))
    result = call(stopped.root, Form.V1, "--yes")
    assert "--from" in str(result.exception)
    assert "the rest of that conversion is dropped. Files that it moved are in" in result.stderr
    done(stopped.root, Form.V1, "--from", "json")
    assert the_one(stopped.root).offsets["orders8@billing1"][0] == 850


@pytest.mark.long
def test_killed_at_any_change_one_form_is_whole_and_the_next_call_goes_on(stores: Path) -> None:
    killed = Interrupted(stores, Form.V2, Form.SINGLE)
    words = ["convert", str(killed.root), "--to", "single", *killed.words]
    at, made = 0, None
    while made is None:
        at += 1
        killed.begin()
        made = changes_until_killed(killed.root, *words, count=at)
        killed.check_one_form_is_whole(at)
        if made is None:
            assert changes_until_killed(killed.root, *words)
        killed.check_converted(at)
    assert at > 5


def _unlike(expected: BrokerMetadata, found: BrokerMetadata) -> list[str]:
    both = [replace(each, versions={}, forbidden={}, pull_offsets={}) for each in (expected, found)]
    return [*map(str, found.faults), *differences(*both)]


def test_what_was_built_is_placed_whatever_the_times_of_its_files(
    stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clocks of a file system differ: a file may be younger than one that was written later."""

    def younger(found: BrokerMetadata, form: Form, root: Path, *, lmq: bool = False) -> None:
        write_form(found, form, root, lmq=lmq)
        for path in root.rglob("*"):
            os.utime(path, (1 << 32, 1 << 32))

    monkeypatch.setattr(conversion, "write_form", younger)
    done(stores / Form.V1, Form.JSON)
    assert the_one(stores / Form.V1).form is Form.JSON
    assert not is_placing(StorePaths(stores / Form.V1))


# ---- interrupted by a signal's handler, between any two instructions


@pytest.fixture
def places_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Interrupted], list[int]]]:
    """Return the numbers of the places of a conversion, of a loop those of its first round."""
    ours = (*interrupts._OURS, f"{cqstore.broker.metadata.__path__[0]}/", shutil.__file__)
    monkeypatch.setattr(interrupts, "_OURS", ours)

    def found(convert: Interrupted) -> list[int]:
        convert.begin()
        return first_places(lambda: call(convert.root, convert.to, *convert.words))

    yield found
    gc.collect()  # what an interrupted call has left in frames


def interrupt_some(convert: Interrupted, numbers: Iterable[int]) -> None:
    """Interrupt the call at these places; another one goes on."""
    old = {path.read_bytes() for path in (convert.golden / "config").rglob("*") if path.is_file()}
    for number in numbers:
        with in_time(SECONDS):
            convert.begin()
            with suppress(interrupts.Interrupted):
                run_interrupted(lambda: call(convert.root, convert.to, *convert.words), number)
            convert.check_one_form_is_whole(number)
            result = call(convert.root, convert.to, *convert.words)
            assert result.exit_code == 0, (number, result.exception)
            convert.check_converted(number)
            there = {path.read_bytes() for path in convert.root.rglob("*") if path.is_file()}
            assert old <= there, number  # of the former forms nothing is lost
            assert not (convert.root / "cqstore" / "new-metadata").exists()


@IGNORED
@pytest.mark.slow
def test_interrupted_anywhere_one_form_is_whole_and_the_next_call_goes_on(
    stores: Path, places_of: Callable[[Interrupted], list[int]]
) -> None:
    convert = Interrupted(stores, Form.V1, Form.JSON)
    found = places_of(convert)
    assert len(found) > 300
    interrupt_some(convert, random.Random("convert").sample(found, 3))


@IGNORED
@pytest.mark.long
@pytest.mark.parametrize(("form", "to"), [(Form.JSON, Form.V1), (Form.V1, Form.JSON)])
def test_interrupted_at_each_place_one_form_is_whole_and_the_next_call_goes_on(
    stores: Path,
    form: Form,
    to: Form,
    places_of: Callable[[Interrupted], list[int]],
    drawn_places: Callable[[int, int], range],
) -> None:
    convert = Interrupted(stores, form, to)
    found = places_of(convert)
    interrupt_some(convert, [found[at - 1] for at in drawn_places(len(found), MOST)])
