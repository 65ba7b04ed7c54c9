"""Retry topics of RocketMQ 5, ``%RETRY%group+topic`` and ``%RETRY%group_topic``: read and moved.

No client may put into a topic whose name has ``+``; the broker does (``KeyBuilder``, pop retries).
"""

from pathlib import Path

import pytest

from cqstore.store.queue.backends import backend_names
from tests.kit.commands import cqstore
from tests.kit.verbs import rows
from tests.migration.made_log import Made, make_store

TOPICS = ["%RETRY%group+topic", "%RETRY%group_topic", "%DLQ%group", "%RETRY%a+%RETRY%b_c"]


def read(root: Path) -> dict[tuple[str, int], list[str]]:
    """Return the bodies of all queues, by topic and queue id."""
    found = dict[tuple[str, int], list[str]]()
    for topic in TOPICS:
        for queue_id in (0, 2):
            read = rows("get", root, "--topic", topic, "--queue-id", queue_id)
            found[topic, queue_id] = [row["body"] for row in read]
    return found


@pytest.mark.parametrize("form", ["jsonl", "csv", "arrow", "store"])
@pytest.mark.parametrize("backend", backend_names())
def test_they_are_read_exported_and_imported(tmp_path: Path, backend: str, form: str) -> None:
    records = [
        Made(topic, queue_id, 1_700_000_000_000, b"%d %d" % (queue_id, number))
        for topic in TOPICS
        for queue_id in (0, 2)
        for number in range(2)
    ]
    root, moved, new = tmp_path / "store", tmp_path / f"moved.{form}", tmp_path / "new"
    make_store(root, records, 1 << 16, backend=backend)
    expected = {(topic, at): [f"{at} 0", f"{at} 1"] for topic in TOPICS for at in (0, 2)}
    assert read(root) == expected
    cqstore("export", root, "--to", moved, "--format", form)
    if form == "store":
        moved.rename(new)
    else:
        conf = tmp_path / "broker.conf"
        conf.write_text("mappedFileSizeCommitLog=65536\n")
        cqstore("import", new, moved, "--new", "--backend", backend, "--config", conf)
    assert read(new) == expected
