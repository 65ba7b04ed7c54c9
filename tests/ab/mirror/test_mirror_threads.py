"""A mirror beside threads that do everything at once: no false difference, nothing held up."""

from pathlib import Path

import pytest

from cqstore.ab.mirror.mismatches import read_mismatches
from cqstore.ab.mirror.verdict import ReadOutcome
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.double_write import OTHER, config
from tests.kit.mirrored import figures, mirror_of
from tests.kit.threads import Threads, compare_all


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("read", list(OTHER))
def test_backends_that_are_alike_are_not_accused_whatever_goes_on(
    tmp_path: Path, read: str
) -> None:
    settings = config(read, ab_share=0.2, mapped_file_size_commit_log=1 << 18)
    store = MessageStore.open(tmp_path, settings, housekeeping=False)
    threads = Threads(store)
    threads.run(8)
    found = read_mismatches(components_of(store).paths.ab_differences)
    assert found == []
    assert mirror_of(store).snapshot().failure == ""
    total = mirror_of(store).snapshot().figures
    assert total.count(ReadOutcome.SAME) > 100
    assert total.count(ReadOutcome.DIFFERENT) == 0
    with MessageStore.open(tmp_path, settings, housekeeping=False) as store:
        assert store.last_exit_ok
        assert compare_all(store, threads.model) > 0
        assert figures(store).count(ReadOutcome.SAME) >= total.count(ReadOutcome.SAME)
