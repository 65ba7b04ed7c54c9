"""A topic that was deleted while its broker was stopped: groups get all of its new messages."""

from pathlib import Path

import pytest

from cqstore.broker.metadata.model import Form
from tests.interop.brokers import Broker, Brokers
from tests.interop.walk import registered
from tests.kit import commands
from tests.kit.long_too import long_too
from tests.kit.waiting import until

pytestmark = pytest.mark.interop
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
FORMS = {
    Form.JSON: {},
    Form.V1: {"storeType": "defaultRocksDB"},
    Form.SINGLE: {"storeType": "defaultRocksDB", "useSingleRocksDBForAllConfigs": "true"},
    Form.V2: {"configManagerVersion": "v2"},
}


def popped(broker: Broker, count: int) -> set[str]:
    """Pop as the group does that has committed; return the keys."""
    found: set[str] = set()

    def has_all() -> bool:
        found.update(broker.do("pop", "billing", "orders", 32, 600_000)["keys"])
        return len(found) >= count

    until(has_all)
    return found


@pytest.mark.parametrize(
    "form", [*(form for form in FORMS if form is not Form.SINGLE), *long_too([Form.SINGLE])]
)
def test_a_broker_gives_all_of_a_topic_that_was_deleted(
    tmp_path: Path, brokers: Brokers, names: dict[str, object], form: Form
) -> None:
    settings = {**SIZES, **names, **FORMS[form]}
    with brokers.running(tmp_path, **settings) as broker:
        registered(broker, "orders")
        assert broker.do("put", "orders", 4, 80)["statuses"] == {"PUT_OK": 80}
        # A broker with queues in files dispatches from its newest unit on: not from these.
        assert broker.do("put", "others", 4, 4)["statuses"] == {"PUT_OK": 4}
        for queue in range(4):
            broker.do("offset", "orders", "billing", queue, 20)
            broker.do("offset", "others", "billing", queue, 7)
    commands.cqstore("topics", str(tmp_path), "orders", "--delete", "--yes")
    with brokers.running(tmp_path, **settings) as broker:
        offsets = broker.do("metadata")["offsets"]
        assert "orders@billing" not in offsets
        assert offsets["others@billing"] == "{0=7, 1=7, 2=7, 3=7}"
        registered(broker, "orders")
        assert broker.do("put", "orders", 4, 20, "new")["statuses"] == {"PUT_OK": 20}
        assert popped(broker, 20) == {f"new{number}" for number in range(20)}
