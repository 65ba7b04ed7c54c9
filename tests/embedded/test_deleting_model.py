"""Interleaved commits, deletions of topics, flushes and reopens, compared with a dict."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqstore import EmbeddedLog
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.metadata.writing import write_form
from cqstore.store.paths import StorePaths
from tests.kit.logs import BACKENDS, opened

TOPICS, GROUPS = ["t", "tt", "u"], ["g", "h"]
TOPIC = st.sampled_from(TOPICS)
STEPS = st.lists(
    st.tuples(st.just("commit"), TOPIC, st.sampled_from(GROUPS), st.integers(0, 2))
    | st.tuples(st.just("delete"), TOPIC, st.none(), st.none())
    | st.tuples(st.sampled_from(["flush", "reopen"]), st.none(), st.none(), st.none()),
    max_size=14,
)  # fmt: skip
Offsets = dict[str, dict[int, int]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_offset_outlives_its_topic_in_any_form(
    tmp_path_factory: pytest.TempPathFactory, backend: str
) -> None:
    """Also in an outdated form next to that of the log."""

    @given(STEPS)
    @settings(max_examples=12)
    def compare(steps: list[tuple[str, str, str, int]]) -> None:
        root = tmp_path_factory.mktemp("log")
        model: Offsets = {}
        with opened(root, backend, queues=3) as log:
            log.put("kept", b"x", queue_id=0)
            commit(log, model, "kept", "g", 0)
        other = {f"{topic}@old": {0: 1} for topic in TOPICS}
        unused = Form.V1 if backend == "file" else Form.JSON
        before = {*root.glob("config/*")}
        write_form(BrokerMetadata(unused, root, offsets=dict(other)), unused, root)
        for path in {*root.glob("config/**/*")} - before:
            if path.parent not in before:
                os.utime(path, (1000, 1000))
            if path.name.startswith(("topics.json", "subscriptionGroup.json")):
                path.unlink()  # the newest form of the groups
        log = opened(root, backend, queues=3)
        for what, topic, group, queue_id in steps:
            match what:
                case "commit":
                    assert log.put(topic, b"x", queue_id=queue_id)
                    commit(log, model, topic, group, queue_id)
                case "delete":
                    log.delete_topic(topic)
                    gone = {key for key in {**model, **other} if key.startswith(f"{topic}@")}
                    model = {key: row for key, row in model.items() if key not in gone}
                    other = {key: row for key, row in other.items() if key not in gone}
                case "flush":
                    log.flush()
                case _:
                    log.close()
                    log = opened(root, backend, queues=3)
            assert log._offsets is not None
            assert log._offsets.rows() == model
        log.close()
        found = {each.form: each.offsets for each in read_forms(StorePaths(root))}
        assert found.pop(unused) == other
        assert [*found.values()] == [model]

    compare()


def commit(log: EmbeddedLog, model: Offsets, topic: str, group: str, queue_id: int) -> None:
    """Commit the end of a queue."""
    assert log._offsets is not None
    end = log.store.max_offset(topic, queue_id)
    log._offsets.commit(group, topic, queue_id, end)
    model.setdefault(f"{topic}@{group}", {})[queue_id] = end
