"""A broker of RocketMQ's goes on where an embedded log stopped, and the other way."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import cqstore
from cqstore.broker.commands import meta_app
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import Form, Offsets
from cqstore.store.paths import StorePaths
from cqstore.store.settings.config import StoreConfig
from tests.interop.brokers import Brokers
from tests.kit.long_too import long_too
from tests.kit.waiting import run, until

pytestmark = pytest.mark.interop
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
SINGLE, V2 = {"useSingleRocksDBForAllConfigs": "true"}, {"configManagerVersion": "v2"}
LOGS = {
    "file": ("default", {}, Form.JSON),
    "file-v2": ("default", V2, Form.V2),
    "rocksdb": ("defaultRocksDB", {}, Form.V1),
    "rocksdb-single": ("defaultRocksDB", SINGLE, Form.SINGLE),
    "rocksdb-v2": ("defaultRocksDB", V2, Form.V2),
}
"""A log's backend and form → the broker's ``storeType``, further settings of both, the form."""


def consume(root: Path, kind: str, puts: int, takes: int) -> tuple[list[str], dict[int, int]]:
    """Put and take as a program does; return what was taken, and where the group is then."""
    words = {**SIZES, **LOGS[kind][1]}
    config = StoreConfig.from_mapping({key: str(value) for key, value in words.items()})

    async def story() -> tuple[list[str], dict[int, int]]:
        backend = kind.partition("-")[0]
        with cqstore.open(root, backend=backend, config=config, queues=2) as log:
            for number in range(puts):
                log.put("orders", b"ours %d" % number)
            async with log.tail("orders", group="billing") as tail:
                found = [(await anext(tail)).body.decode() for _ in range(takes)]
            return found, log.committed("billing", "orders")

    return run(story())


def stored(root: Path) -> dict[Form, Offsets]:
    """Return the forms on disk, and the offsets in each."""
    return {each.form: each.offsets for each in read_forms(StorePaths(root))}


@pytest.mark.parametrize(
    "kind", ["file", "rocksdb", "rocksdb-v2", *long_too(["file-v2", "rocksdb-single"])]
)
def test_a_broker_goes_on_where_a_program_stopped_and_back(
    tmp_path: Path, brokers: Brokers, kind: str
) -> None:
    store_type, words, form = LOGS[kind]
    settings = {"storeType": store_type, **words, **SIZES}
    found, offsets = consume(tmp_path, kind, 10, 6)
    assert found == [f"ours {number}" for number in range(6)]
    assert stored(tmp_path) == {form: {"orders@billing": offsets}}
    with brokers.running(tmp_path, **settings) as broker:
        known = broker.do("metadata")
        assert known["offsets"] == {"orders@billing": f"{{0={offsets[0]}, 1={offsets[1]}}}"}
        row = str(known["topics"]["orders"])
        assert "readQueueNums=2, writeQueueNums=2" in row
        assert broker.do("put", "orders", 2, 4)["statuses"] == {"PUT_OK": 4}
        broker.do("offset", "orders", "billing", 0, offsets[0] + 1)
        broker.do("offset", "orders", "audit", 1, 5)
        if form is Form.SINGLE:  # 5.5.1 may close this database before its last write
            until(lambda: stored(tmp_path)[form].get("orders@audit") == {1: 5})
    found, _ = consume(tmp_path, kind, 1, 8)
    assert found[:3] == [f"ours {number}" for number in range(7, 10)]
    assert found[-1] == "ours 0"
    assert list(stored(tmp_path)) == [form]
    with brokers.running(tmp_path, **settings) as broker:
        known = broker.do("metadata")
        assert known["offsets"] == {
            "orders@billing": "{0=8, 1=7}", "orders@audit": "{1=5}",
        }  # fmt: skip


def test_offsets_in_files_go_on_in_the_database_of_a_broker(
    tmp_path: Path, brokers: Brokers
) -> None:
    """The log converts them when it is opened, as a broker imports them at its start."""
    _, offsets = consume(tmp_path, "rocksdb", 10, 6)
    converted(tmp_path, Form.JSON)
    _, offsets = consume(tmp_path, "rocksdb", 0, 1)
    assert stored(tmp_path) == {Form.V1: {"orders@billing": offsets}}
    assert sum(offsets.values()) == 7
    with brokers.running(tmp_path, storeType="defaultRocksDB", **SIZES) as broker:
        known = broker.do("metadata")
        assert known["offsets"] == {"orders@billing": f"{{0={offsets[0]}, 1={offsets[1]}}}"}


def converted(root: Path, to: Form) -> None:
    done = CliRunner().invoke(meta_app, ["convert", str(root), "--to", to, "--yes"])
    assert done.exit_code == 0, (done.output, done.exception)
