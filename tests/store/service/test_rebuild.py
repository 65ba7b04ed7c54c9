"""Queues and index rebuilt from the log: whole or single, cut short at any step, refused."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreFailedError, StoreIOError
from cqstore.store.queue.backends import backend as backend_class
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.service.recovering.replacement import Rebuild
from tests.kit.golden import CLEAN, each_kind, load_dump
from tests.kit.rebuilt import CONFIG, Facts, facts, fill
from tests.kit.tree import tree_digest

Golden = Callable[[str], Path]
BATCH = "special-default"
SIMPLE = [name for name in CLEAN if name != BATCH]


@pytest.fixture(scope="module", params=backend_names())
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, backend: str) -> Path:
    """A store with light queues, a deleted topic, and a queue all of whose records expired."""
    root = tmp_path_factory.mktemp("filled") / "store"
    with opened(root, backend=backend) as store:
        fill(store)
    return root


@pytest.fixture
def root(tmp_path: Path, filled: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(filled, tmp_path / "store"))


def opened(root: Path, **options: object) -> MessageStore:
    return MessageStore.open(root, CONFIG, housekeeping=False, **options)  # type: ignore[arg-type]


def read(root: Path, **options: object) -> Facts:
    with opened(root, read_only=True, **options) as store:
        assert [finding for finding in store.check() if finding.damage] == []
        return facts(store)


def damage(root: Path, backend: str) -> None:
    """Spoil queue 1 of topic t behind the store's back."""
    if backend == "file":
        for path in sorted((root / "consumequeue" / "t" / "1").iterdir())[:2]:
            path.write_bytes(bytes(range(200)) * 2)
        return
    with opened(root) as store:
        components_of(store).queues.delete_queue("t", 1)


@pytest.fixture(params=["in its backend", "in the other one"])
def target(request: pytest.FixtureRequest, backend: str) -> str:
    if request.param == "in its backend":
        return backend
    (other,) = set(backend_names()) - {backend}
    return other


# ---- all queues


def test_all_queues_are_the_same_again_and_the_old_ones_are_kept(
    root: Path, backend: str, target: str
) -> None:
    before = read(root)
    assert before[QueueKey("expired", 0)][:2] == (15, 15)
    assert QueueKey("%LMQ%two", 0) in before
    ticks: list[int] = []
    with opened(
        root,
        recovery=RecoveryOptions(rebuild=Rebuild.QUEUES),
        backend=target,
        progress=ticks.append,
    ) as store:
        assert components_of(store).queues.name == target
        assert facts(store) == before
        assert store.put_message(Message("expired", b"x")).queue_offset == 15
    (kept,) = (root / "cqstore" / "replaced").iterdir()
    shutil.rmtree(root / "consumequeue")
    (kept / "consumequeue").rename(root / "consumequeue")
    assert backend_class(backend).present(components_of(store).paths), (
        "what was there could be moved back"
    )


@pytest.mark.parametrize("name", each_kind(SIMPLE))
def test_queues_of_rocketmq_are_the_same_again_in_either_backend(
    golden: Golden, name: str, backend: str
) -> None:
    root, queues = golden(name), load_dump(name)["queues"]
    with MessageStore.open(
        root, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES), backend=backend
    ) as store:
        found = {key: store.max_offset(*key) for key in store.queue_keys()}
        units = store.report.dispatched_units
    wanted = {(q["topic"], q["queueId"]): q["max"] for q in queues if q["max"]}
    assert {key: end for key, end in found.items() if key in wanted} == wanted
    assert units >= sum(q["max"] - q["min"] for q in queues)


@pytest.fixture(params=[StoreIOError("refused"), KeyboardInterrupt()])
def fault(request: pytest.FixtureRequest) -> BaseException:
    found: BaseException = request.param
    return found


@pytest.mark.parametrize("step", range(6))
def test_a_rebuild_that_is_cut_short_goes_on_with_the_next_open(
    root: Path, target: str, monkeypatch: pytest.MonkeyPatch, fault: BaseException, step: int
) -> None:
    before = read(root)
    left = [step]

    def count_down() -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise fault
        return False

    with monkeypatch.context() as patched:
        rename, put_batch = Path.rename, backend_class(target).put_batch
        patched.setattr("cqstore.store.service.dispatching.replay.REPLAY_UNITS", 100)
        patched.setattr(Path, "rename", lambda *args: count_down() or rename(*args))
        patched.setattr(
            backend_class(target), "put_batch", lambda *args: count_down() or put_batch(*args)
        )
        with pytest.raises(type(fault)):
            opened(root, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES), backend=target)
    with opened(root) as store:
        if step > 1:
            assert components_of(store).queues.name == target, "as it was begun"
        assert facts(store) == before
    assert read(root) == before
    assert not (root / "cqstore" / "replacing").exists()


def test_a_damaged_log_is_refused_while_the_queues_are_still_there(
    root: Path, backend: str
) -> None:
    last = sorted((root / "commitlog").iterdir())[-1]
    start = int(last.name)
    with opened(root, read_only=True) as store:
        third = [record.phy_offset for record in components_of(store).log.scan(start)][2]
    with last.open("r+b") as file:
        file.seek(third - start + 100)
        file.write(b"\xff" * 50)
    queues = tree_digest(root / "consumequeue")
    with pytest.raises(RefusedStoreError, match=f"--cut-at {third}"):
        opened(root, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES))
    assert tree_digest(root / "consumequeue") == queues
    with opened(root, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES, cut_at=third)) as store:
        assert store.max_phy_offset() == third
        assert [finding for finding in store.check() if finding.damage] == []


# ---- single queues


@pytest.mark.parametrize("queue_id", [1, None])
def test_single_queues_are_the_same_again(root: Path, backend: str, queue_id: int | None) -> None:
    before = read(root)
    damage(root, backend)
    ticks: list[int] = []
    with opened(root) as store:
        assert facts(store) != before
        report = store.rebuild_queues("t", queue_id, ticks.append)
        assert facts(store) == before
        assert store.put_message(Message("t", b"x", 1)).queue_offset == before[QueueKey("t", 1)][1]
    wanted = [before[key][2] for key in before if key.topic == "t" and queue_id in {None, key[1]}]
    assert report.units == sum(map(len, wanted))
    assert ticks


def test_a_light_queue_and_an_expired_one_are_the_same_again(root: Path) -> None:
    before = read(root)
    with opened(root) as store:
        assert store.rebuild_queues("%LMQ%one").units == len(before[QueueKey("%LMQ%one", 0)][2])
        assert store.rebuild_queues("expired") == (2, 0)
        assert store.rebuild_queues("gone") == (0, 0)
        assert facts(store) == before
    assert read(root) == before


def test_a_rebuild_that_would_lose_units_is_refused(root: Path) -> None:
    before = read(root)
    config = CONFIG.model_copy(update={"enable_lmq": False})
    with MessageStore.open(root, config) as store:
        with pytest.raises(RefusedStoreError, match="would lose its units"):
            store.rebuild_queues("%LMQ%one")
        assert facts(store) == before


def test_a_single_rebuild_in_a_damaged_log_changes_nothing(root: Path) -> None:
    with opened(root) as store:
        before = facts(store)
        end = store.max_phy_offset()
        at = next(components_of(store).log.scan(65536)).phy_offset
        place = components_of(store).log.files.find(at)
        assert place is not None
        place.map()[at - place.file_from_offset + 100] ^= 0xFF
        with pytest.raises(CorruptionError):
            store.rebuild_queues("t")
        place.map()[at - place.file_from_offset + 100] ^= 0xFF
        assert facts(store) == before
        assert store.max_phy_offset() == end


def test_a_single_rebuild_that_is_cut_short_is_done_again(
    root: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read(root)
    store = opened(root)
    with monkeypatch.context() as patched:
        patched.setattr(
            type(components_of(store).queues),
            "put_batch",
            lambda *_: (_ for _ in ()).throw(KeyboardInterrupt),
        )
        with pytest.raises(KeyboardInterrupt):
            store.rebuild_queues("t", 1)
    with pytest.raises(StoreFailedError, match="interrupted"):  # it would get an offset again
        store.put_message(Message("t", b"x", 1))
    store.close()
    with opened(root, read_only=True) as half:
        assert half.report.needed
        assert half.max_offset("t", 1) == 0
    with opened(root) as again:
        assert facts(again) == before
    assert read(root) == before
    assert not (root / "cqstore" / "rebuilding").exists()


def batch_units(root: Path) -> dict[str, bytes]:
    """Return the units of each file of batch queues, without the zeros after them."""
    folder = root / "batchconsumequeue"
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/*/*")}
    return {name: data.rstrip(b"\0") for name, data in found.items() if any(data)}


@pytest.mark.parametrize("which", [None, 0, 1])
@pytest.mark.parametrize("lost", ["nothing", "units", "queues"])
def test_batch_queues_of_rocketmq_are_rebuilt_byte_for_byte(
    golden: Golden, which: int | None, lost: str
) -> None:
    root = golden(BATCH)
    (topic,) = {q["topic"] for q in load_dump(BATCH)["queues"] if q["type"] == "BatchCQ"}
    before = batch_units(root)
    assert len(before) == 2
    if lost == "queues":
        shutil.rmtree(root / "batchconsumequeue" / topic / str(which or 0))
    elif lost == "units":
        path = next((root / "batchconsumequeue" / topic / str(which or 0)).iterdir())
        path.write_bytes(path.read_bytes()[:92].ljust(460, b"\0"))
    with MessageStore.open(root) as store:
        there = 2 if which is None else 1
        report = store.rebuild_queues(topic, which)
        assert report == (there - (lost == "queues"), 6 * there)
    assert batch_units(root) == before


@pytest.mark.parametrize("lost", ["nothing", "queues", "topic"])
def test_all_queues_of_rocketmq_are_rebuilt_with_batch_queues(golden: Golden, lost: str) -> None:
    root = golden(BATCH)
    before = batch_units(root)
    folder = root / "batchconsumequeue"
    for path in {"nothing": [], "queues": folder.glob("*/*"), "topic": [folder]}[lost]:
        shutil.rmtree(path)
    with MessageStore.open(root, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES)) as store:
        assert [found for found in store.check() if found.damage and found.queue is not None] == []
    assert batch_units(root) == before
    (kept,) = (root / "cqstore" / "replaced").iterdir()
    assert (batch_units(kept) == before) == (lost == "nothing")


# ---- the index


def keys_found(store: MessageStore) -> list[int]:
    return [message.queue_offset for message in store.query_message("t", "key", 60)]


@pytest.mark.parametrize("how", ["garbage", "short", "asked for"])
def test_a_broken_index_stops_nothing_and_is_built_anew(root: Path, how: str) -> None:
    with opened(root) as store:
        wanted = keys_found(store)
    files = sorted((root / "index").iterdir())
    names = len(files)
    if how == "garbage":
        files[0].write_bytes(b"\1" * 12345)
    elif how == "short":
        files[0].write_bytes(files[0].read_bytes()[:-1])
    with opened(root, read_only=True) as store:
        assert store.max_offset("t", 0)
    parts = Rebuild.INDEX if how == "asked for" else Rebuild.NOTHING
    with opened(root, recovery=RecoveryOptions(rebuild=parts)) as store:
        assert bool(store.report.index_dropped) == (how != "asked for")
        assert keys_found(store) == wanted
        assert [finding for finding in store.check() if finding.damage] == []
    assert 0 < len(list((root / "index").iterdir())) <= names, "what expired is not there again"
    (kept,) = (root / "cqstore" / "replaced").iterdir()
    assert len(list((kept / "index").iterdir())) == names
    with opened(root) as store:
        assert not store.report.needed
        assert keys_found(store) == wanted


def test_batch_topics_keep_a_rebuild_of_all_queues_in_rocksdb_away(
    root: Path, backend: str
) -> None:
    before = read(root)
    folder = root / "batchconsumequeue"
    folder.mkdir()
    opened(root, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES)).close()
    assert read(root) == before
    (folder / "topic").mkdir()
    if backend == "file":
        opened(root, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES)).close()
        assert read(root) == before
        assert (folder / "topic").is_dir()
    digest = tree_digest(root)
    with pytest.raises(RefusedStoreError, match="BatchCQ topics exist only as files: 'topic'"):
        opened(root, backend="rocksdb", recovery=RecoveryOptions(rebuild=Rebuild.QUEUES))
    assert tree_digest(root) == digest
    opened(root, recovery=RecoveryOptions(rebuild=Rebuild.INDEX)).close()
