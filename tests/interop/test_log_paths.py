"""A log in several paths: RocketMQ places and loads its files as we do, and each goes on."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.store.errors import RefusedStoreError, StoreError
from cqstore.store.log.file_places import FilePlaces
from cqstore.store.log.log_files import list_log_files
from cqstore.store.record.message import Message
from cqstore.store.service.layout.log_paths import log_paths
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.backup import back_up
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.interop.asking import max_offset
from tests.interop.brokers import Brokers
from tests.interop.rocketmq import FOLDER, RocketMQ
from tests.interop.test_interop import KINDS, QUEUES, SIZES, put
from tests.interop.test_log_folders import SIZE, loaded, make
from tests.kit.migrations import NO_SPARK
from tools.bench.peer.maven import JavaProgram

pytestmark = pytest.mark.interop
STATES, COUNT, FOLDERS = 5000, 9, 300
NAMES = [
    "/d/a", "/d/a/", "/d/a-b", "/d/a-b/", "/d/A", "/d/a b", "/d/a.b", "/d/~", "/d/\u00e9",
    "/d/\uff21", "/d/\U0001f600", "/e/a", "/d//z", "relative/a",
]  # fmt: skip


def test_new_files_are_placed_as_rocketmq_places_them(rocketmq: RocketMQ, tmp_path: Path) -> None:
    program = JavaProgram(FOLDER, "interop.LogPlaces", rocketmq.program.version)
    seeded, states = random.Random(42), []
    for _ in range(STATES):
        paths = seeded.sample(NAMES, seeded.randrange(1, 5))
        read_only = seeded.sample(NAMES, seeded.choice([0, 0, 1, 2]))
        full = seeded.sample(paths, seeded.randrange(len(paths) + 1))
        states.append((paths, read_only, full))
    lines = (
        f"{','.join(paths)},\t{','.join(read_only)}\t{','.join(full)}\t{SIZE}\t{COUNT}\n"
        for paths, read_only, full in states
    )
    done = subprocess.run(
        program.command(tmp_path, ["-Xmx256m"]), input="".join(lines), capture_output=True,
        text=True, check=True, timeout=300, env=program.environment(),
    )  # fmt: skip
    refused = nowhere = 0
    for (paths, read_only, full), line in zip(states, done.stdout.splitlines(), strict=True):
        config = StoreConfig.from_mapping({
            "storePathCommitLog": ",".join(paths) + ",",
            "readOnlyCommitLogStorePaths": ",".join(read_only),
        })  # fmt: skip
        try:
            found = log_paths(tmp_path / "store", config)
        except RefusedStoreError:  # /d/a and /d/a/
            refused += 1
            continue
        theirs = [Path(each).parent for each in json.loads(line)]
        places = FilePlaces(found.targets, lambda full=full: [Path(each) for each in full])  # type: ignore[misc]
        numbers = [at + after for at in range(COUNT) for after in (0, 1)] if found.targets else []
        nowhere += not found.targets
        assert [places.folder(number) for number in numbers] == theirs, (paths, read_only, full)
    assert refused < STATES // 2
    assert nowhere > STATES // 100


def spread(root: Path, seeded: random.Random) -> None:
    """Make a log in ``commitlog``, then move some of its files to ``b``, or copy one."""
    make(root / "commitlog", seeded)
    (root / "b").mkdir()
    for path in sorted((root / "commitlog").iterdir()):
        if seeded.random() < 0.5:
            path.rename(root / "b" / path.name)
        elif seeded.random() < 0.05 and path.is_file():
            shutil.copy(path, root / "b" / path.name)


def both(root: Path) -> str:
    return f"{root}/commitlog,{root}/b"


def ours(root: Path) -> list[int] | None:
    """Return where the files of a log begin that can be opened to be written; ``None``: refused."""
    config = StoreConfig(mapped_file_size_commit_log=SIZE, store_path_commit_log=both(root))
    try:
        begins = [*list_log_files([root / "commitlog", root / "b"])]
        MessageStore.open(root, config, housekeeping=False).close()
    except StoreError:
        return None
    return begins


def test_what_is_opened_here_is_loaded_by_rocketmq_too(rocketmq: RocketMQ, tmp_path: Path) -> None:
    program = JavaProgram(FOLDER, "interop.LogFolders", rocketmq.program.version)
    roots = {whose: [tmp_path / whose / str(at) for at in range(FOLDERS)] for whose in ("x", "y")}
    for places in roots.values():
        seeded = random.Random(42)
        for root in places:
            spread(root, seeded)
    requested = {whose: [Path(both(root)) for root in places] for whose, places in roots.items()}
    before = loaded(program, tmp_path, requested["x"], "")
    found = [*map(ours, roots["y"])]
    after = loaded(program, tmp_path, requested["y"], "")
    opened = 0
    for root, begins, was, now in zip(roots["y"], found, before, after, strict=True):
        if begins is not None:
            opened += 1
            names = sorted(str(path) for path in root.glob("*/*"))
            assert now["loaded"], names
            assert (was["loaded"], was["begins"]) == (True, begins), names
    assert opened > FOLDERS // 4


def settings_of(tmp_path: Path, *names: str, **given: object) -> dict[str, object]:
    """Return the settings of the store ``s`` with a log in these folders."""
    text = ",".join(f"{tmp_path}/{name}" for name in names)
    return {**SIZES, "storePathCommitLog": text, "storePathRootDir": str(tmp_path / "s"), **given}


def places_of(tmp_path: Path, *names: str) -> dict[int, str]:
    files = list_log_files([tmp_path / name for name in names])
    return {start // 65536: path.parent.name for start, (path, _) in files.items()}


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("backend", list(KINDS))
def test_each_goes_on_in_the_paths_where_the_other_stopped(
    tmp_path: Path, rocketmq: RocketMQ, backend: str, *, crash: bool
) -> None:
    given = settings_of(tmp_path, "d2", "d1")
    root, config, kind = tmp_path / "s", StoreConfig.from_mapping(given), KINDS[backend]
    rocketmq.append(root, kind, QUEUES, 400, crash=crash, **given)
    with MessageStore.open(root, config, backend=backend) as store:
        low = len(list(components_of(store).log.scan(0)))
        assert low == 4 * 400
        for number in range(800):
            put(store, number)
        assert [finding for finding in store.check() if finding.damage] == []
    rocketmq.append(root, kind, QUEUES, 200, crash=crash, **given)
    with MessageStore.open(root, config) as store:
        total = len(list(components_of(store).log.scan(0)))
        assert total == low + 800 + 4 * 200
        assert [finding for finding in store.check() if finding.damage] == []
    rows = rocketmq.dump(root, kind, QUEUES, **given)
    assert len([row for row in rows if row["kind"] == "message"]) == total
    places = places_of(tmp_path, "d1", "d2")
    assert len(places) > 6
    assert {number % 2 for number, name in places.items() if name == "d1"} == {0}
    assert {number % 2 for number, name in places.items() if name == "d2"} == {1}


def test_a_brokers_log_in_several_paths_is_backed_up_and_planned(
    tmp_path: Path, rocketmq: RocketMQ
) -> None:
    given = settings_of(tmp_path, "d1", "d2")
    root, config = tmp_path / "s", StoreConfig.from_mapping(given)
    rocketmq.append(root, "default", QUEUES, 400, crash=False, **given)
    back_up(root, tmp_path / "backup", config)
    rows = rocketmq.dump(tmp_path / "backup", "default", QUEUES, **SIZES)
    assert len([row for row in rows if row["kind"] == "message"]) == 4 * 400
    assert make_plan(root, config).units == 4 * 400


def test_no_file_is_added_to_a_read_only_path_by_either(tmp_path: Path, rocketmq: RocketMQ) -> None:
    root = tmp_path / "s"
    given = settings_of(tmp_path, "d1", "d2")
    rocketmq.append(root, "default", QUEUES, 400, crash=False, **given)
    kept = places_of(tmp_path, "d1")
    given["readOnlyCommitLogStorePaths"] = f"{tmp_path}/d1"
    with MessageStore.open(root, StoreConfig.from_mapping(given)) as store:
        for number in range(800):
            put(store, number)
    rocketmq.append(root, "default", QUEUES, 200, crash=False, **given)
    assert places_of(tmp_path, "d1").keys() <= kept.keys()
    with MessageStore.open(root, StoreConfig.from_mapping(given), read_only=True) as store:
        assert len(list(components_of(store).log.scan(0))) == 4 * 400 + 800 + 4 * 200


@pytest.mark.usefixtures("brokers_have_ended")
def test_a_broker_in_two_paths_is_moved_and_goes_on(tmp_path: Path, brokers: Brokers) -> None:
    root = tmp_path / "s"
    given = settings_of(tmp_path, "d2", "d1")
    config = StoreConfig.from_mapping(given)
    with brokers.running(root, **given) as broker:
        broker.do("topic", "t0")
        assert broker.do("put", "t0", 2, 900)["statuses"] == {"PUT_OK": 900}
    with MessageStore.open(root, config) as store:
        assert [each for each in store.check() if each.damage] == []
        assert store.put_message(Message("t0", b"x", 0)).ok
        ends = [store.max_offset("t0", queue_id) for queue_id in (0, 1)]
    assert sum(ends) == 901
    make_plan(root, config)
    run_plan(root, master=NO_SPARK)
    verify_migration(root, master=NO_SPARK)
    switch(root, config)
    with brokers.running(root, storeType="defaultRocksDB", **given) as broker:
        assert [max_offset(broker, "t0", queue_id) for queue_id in (0, 1)] == ends
        assert broker.do("put", "t0", 2, 900)["statuses"] == {"PUT_OK": 900}
    with MessageStore.open(root, config) as store:
        assert sum(store.max_offset("t0", queue_id) for queue_id in (0, 1)) == 1801
        assert [each for each in store.check() if each.damage] == []
    places = places_of(tmp_path, "d1", "d2")
    assert {number % 2 for number, name in places.items() if name == "d1"} == {0}
    assert {number % 2 for number, name in places.items() if name == "d2"} == {1}
