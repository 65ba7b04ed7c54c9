"""Killed as it writes a page: ``python -m tests.kit.killed_writer DIR PAGE SIZE…``.

It puts a list of bodies of these sizes into a store behind ``FIRST``. The page of the log is
read-only by then, so the first byte that goes there is the process's end, wherever that is.
"""

import ctypes
import mmap
import sys
from pathlib import Path

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig

CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 20, max_hash_slot_num=100, max_index_num=400
)  # fmt: skip


FIRST = b"first"
LONG = {
    "long": "x" * 9000
}  # over two pages: of a record they come last, and no checksum is of them


def body_of(number: int, size: int) -> bytes:
    return bytes([number + 1]) * size


def main(root: str, page: str, *sizes: str) -> None:
    with MessageStore.open(Path(root), CONFIG, housekeeping=False) as store:
        store.put_message(Message("t", FIRST))
        file = components_of(store).log.current
        assert file is not None
        held = ctypes.c_char.from_buffer(file.map())
        library = ctypes.CDLL(None, use_errno=True)
        at = ctypes.c_void_p(ctypes.addressof(held) + int(page) * mmap.PAGESIZE)
        assert library.mprotect(at, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ) == 0
        bodies = [body_of(*each) for each in enumerate(map(int, sizes))]
        store.put_messages([Message("t", body, 0, LONG) for body in bodies])


if __name__ == "__main__":
    main(*sys.argv[1:])
