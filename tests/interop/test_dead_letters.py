"""Dead letters of a broker of RocketMQ's, and what it makes of those that are put again."""

import json
from pathlib import Path

import pytest

from cqstore.cli.commands.import_ import import_
from tests.interop.brokers import Brokers
from tests.kit.operating import call, rows
from tests.kit.waiting import until

pytestmark = pytest.mark.interop
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
KINDS = {"file": "default", "rocksdb": "defaultRocksDB"}


@pytest.mark.parametrize("backend", ["rocksdb", pytest.param("file", marks=pytest.mark.long)])
def test_what_a_broker_gave_up_is_told_and_put_again(
    tmp_path: Path, brokers: Brokers, backend: str
) -> None:
    root = tmp_path / "store"
    settings = {"storeType": KINDS[backend], **SIZES}
    with brokers.running(root, **settings) as broker:
        broker.do("groups", "g", 1)
        broker.do("topic", "orders")
        assert broker.do("put", "orders", 4, 4)["statuses"] == {"PUT_OK": 4}
        until(lambda: len(broker.do("read", "orders")["keys"]) == 4)
        given_up = [broker.do("fail", "g0", "orders", queue_id, 0) for queue_id in (2, 3)]
        assert {answer["code"] for answer in given_up} == {0}, given_up
        until(lambda: len(broker.do("read", "%DLQ%g0")["keys"]) == 2)
        again = broker.do("fail", "g0", "%DLQ%g0", 0, 1)  # a dead letter that fails once more
        assert again["code"] == 0
    found = rows("dlq", root)
    names = ("group", "originTopic", "messages", "leastReconsumeTimes", "mostReconsumeTimes")
    assert [tuple(row[name] for name in names) for row in found] == [("g0", "orders", 3, 1, 2)]
    letters = rows("dlq", root, "g0")
    first = [answer["msgId"] for answer in given_up]
    origins = [letter["properties"]["ORIGIN_MESSAGE_ID"] for letter in letters]
    assert origins == [first[0], first[1], first[1]]
    keys = {row["msgId"]: row["properties"]["KEYS"] for row in rows("dlq", root, "g0")}
    assert [*keys.values()] == ["k2", "k3", "k3"]
    assert {letter["properties"]["RETRY_TOPIC"] for letter in letters} == {"orders"}
    for where in ("topic", "group"):
        path = tmp_path / f"{where}.jsonl"
        path.write_text(call("dlq", root, "g0", "--again", where, "--limit", 2).stdout)
        line = json.loads(path.read_text().splitlines()[0])
        assert {*line["properties"]} - {"RETRY_TOPIC"} == {"KEYS", "ORIGIN_MESSAGE_ID"}
        import_(root, path, backend=backend)
    with brokers.running(root, **settings) as broker:
        until(lambda: len(broker.do("read", "%RETRY%g0")["keys"]) == 2)
        assert sorted(broker.do("read", "orders")["keys"]) == ["k0", "k1", "k2", "k2", "k3", "k3"]
        assert broker.do("read", "%RETRY%g0")["keys"] == ["k2", "k3"]
        failed = broker.do("fail", "g0", "%RETRY%g0", 0, 0)  # it fails as any message does
        assert failed["code"] == 0
    assert rows("dlq", root)[0]["messages"] == 4
