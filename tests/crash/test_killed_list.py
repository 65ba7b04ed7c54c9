"""A process is killed in the middle of a list, as it writes a page of the log."""

import itertools
import mmap
import signal
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.commands import run_module
from tests.kit.killed_writer import CONFIG, FIRST, LONG, body_of

LISTS = {
    "in one call": [10, 60_000, 20, 60_000, 60_000, 30_000],  # under the interpreter's lock
    "beside others": [10, 70_000, 20, 70_000, 70_000],  # without it, for bodies are long
}
FIXED = 88 + 2 + 2
"""Bytes of a record of topic ``t`` without its body and its properties."""
PAGES = [1, 17, 20, *(pytest.param(page, marks=pytest.mark.long) for page in range(0, 61, 3))]


def killed_at(root: Path, page: int, sizes: list[int], end: int) -> list[bytes]:
    """Return the bodies that are there after a kill at a page; whole records end at ``end``."""
    done = run_module("tests.kit.killed_writer", root, page, *sizes)
    assert "Error" not in done.stderr
    assert done.returncode == -signal.SIGSEGV or "AddressSanitizer: SEGV" in done.stderr
    log = Path(root, "commitlog", f"{0:020d}").read_bytes()
    assert log[end : end + 8] == bytes(8)  # size and magic come last
    with MessageStore.open(root, CONFIG, housekeeping=False) as store:
        found = store.get_message("t", 0, 0).messages()
        bodies = [message.body for message in found]
        assert [message.properties for message in found[1:]] == [LONG] * (len(found) - 1)
        assert [finding for finding in store.check() if finding.damage] == []
        assert store.put_message(Message("t", b"more")).queue_offset == len(found)
    return bodies


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("name", LISTS)
def test_a_kill_at_a_page_leaves_the_whole_records_before_it(
    tmp_path: Path, name: str, page: int
) -> None:
    sizes, properties = LISTS[name], len("long") + 9000 + 2
    bodies = [FIRST, *(body_of(*each) for each in enumerate(sizes))]
    ends = [
        end + FIXED * (at + 1) + properties * at
        for at, end in enumerate(itertools.accumulate(map(len, bodies)))
    ]
    whole = 1 + sum(end <= page * mmap.PAGESIZE for end in ends[1:])
    assert killed_at(tmp_path, page, sizes, ends[whole - 1]) == bodies[:whole]
