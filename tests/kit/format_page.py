"""The tables of docs/format.md, made from the layouts: ``python -m tests.kit.format_page``."""

import re
from pathlib import Path
from typing import Any

from cqstore.broker.metadata.config_files import TIMER_CHECK_POINT
from cqstore.broker.pending.timer import TIMER_SLOT
from cqstore.cq_file.layout import BATCH_UNIT, EXT_UNIT_HEAD, FILE_UNIT
from cqstore.cq_rocksdb.keys import (
    CHECKPOINT_ENTRY,
    KEY_HEAD,
    OFFSET_ENTRY,
    OFFSET_TAIL,
    QUEUE_TAIL,
    UNIT_PLACE,
)
from cqstore.remoting.frame import COMMAND_HEAD
from cqstore.remoting.header import BINARY_HEADER
from cqstore.replication.epoch_wire import (
    EPOCH_ENTRY,
    MASTER_HANDSHAKE,
    SLAVE_HANDSHAKE,
    SLAVE_REPORT,
    TRANSFER_HEAD,
)
from cqstore.replication.wire import FRAME_HEAD, REPORT
from cqstore.store.index.layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from cqstore.store.log.checkpoint import CHECKPOINT
from cqstore.store.log.synced_mark import MARK_SLOT
from cqstore.store.queue.units import QUEUE_UNIT
from cqstore.store.record.client_batch import CLIENT_BATCH_HEAD
from cqstore.store.record.layout import Layout
from cqstore.store.record.record_layout import BLANK, HEAD, STORED, TAIL

PAGE = Path(__file__).parents[2] / "docs" / "format.md"
LAYOUTS: dict[str, Layout[Any]] = {
    "HEAD": HEAD,
    "STORED": STORED,
    "TAIL": TAIL,
    "BLANK": BLANK,
    "CLIENT_BATCH_HEAD": CLIENT_BATCH_HEAD,
    "QUEUE_UNIT": QUEUE_UNIT,
    "FILE_UNIT": FILE_UNIT,
    "BATCH_UNIT": BATCH_UNIT,
    "EXT_UNIT_HEAD": EXT_UNIT_HEAD,
    "KEY_HEAD": KEY_HEAD,
    "QUEUE_TAIL": QUEUE_TAIL,
    "UNIT_PLACE": UNIT_PLACE,
    "OFFSET_TAIL": OFFSET_TAIL,
    "OFFSET_ENTRY": OFFSET_ENTRY,
    "CHECKPOINT_ENTRY": CHECKPOINT_ENTRY,
    "INDEX_SLOT": INDEX_SLOT,
    "INDEX_HEADER": INDEX_HEADER,
    "INDEX_ENTRY": INDEX_ENTRY,
    "CHECKPOINT": CHECKPOINT,
    "MARK_SLOT": MARK_SLOT,
    "REPORT": REPORT,
    "FRAME_HEAD": FRAME_HEAD,
    "SLAVE_HANDSHAKE": SLAVE_HANDSHAKE,
    "SLAVE_REPORT": SLAVE_REPORT,
    "MASTER_HANDSHAKE": MASTER_HANDSHAKE,
    "EPOCH_ENTRY": EPOCH_ENTRY,
    "TRANSFER_HEAD": TRANSFER_HEAD,
    "COMMAND_HEAD": COMMAND_HEAD,
    "BINARY_HEADER": BINARY_HEADER,
    "TIMER_CHECK_POINT": TIMER_CHECK_POINT,
    "TIMER_SLOT": TIMER_SLOT,
}
_BLOCK = re.compile(r"(<!-- layout: (\w+) -->\n)(?:\|[^\n]*\n)*(<!-- end -->)")


def rendered(text: str) -> str:
    """Return ``text`` with every table made again."""
    return _BLOCK.sub(lambda m: m[1] + LAYOUTS[m[2]].table() + "\n" + m[3], text)


def named(text: str) -> list[str]:
    """Return the names of the layouts that ``text`` shows."""
    return [match[2] for match in _BLOCK.finditer(text)]


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
