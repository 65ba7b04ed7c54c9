"""The least that moving queues can cost: numpy and RocksDB's table writer, no plan, no checks."""

import json
import time
from itertools import islice
from pathlib import Path

import numpy as np

from cqstore.cq_file.layout import FILE_UNIT
from cqstore.cq_rocksdb.engine.choice import open_engine
from cqstore.cq_rocksdb.engine.rocks_engine import Family
from cqstore.cq_rocksdb.keys import OFFSET_ENTRY, OffsetEntry, max_key, queue_prefix
from cqstore.store.queue.bulk import UNIT_ROWS, key_order, row_table
from cqstore.store.settings.config import StoreConfig
from tools.bench.sample_store import LOG_FILE_BYTES, topic_and_queue

PARTS = 4
"""Shares of the queues, a process each."""
_STAMP_AT = 56


def raw_part(item: str) -> str:
    """Write the tables of one of ``PARTS`` equal shares of the queues.

    Returns JSON: when it began and when it ended, s since the epoch.

    Args:
        item: JSON: ``root`` of the store, folder ``to``, number of ``queues``, ``part`` (which
            share, from 0 on), ``max_units`` that a queue has at most.
    """
    given = json.loads(item)
    root, folder = Path(given["root"]), Path(given["to"])
    started = time.time()
    keys = sorted((topic_and_queue(number) for number in range(given["queues"])), key=key_order)
    share = -(-len(keys) // PARTS)
    stamps = {
        int(path.name): np.ndarray(
            (LOG_FILE_BYTES - _STAMP_AT - 8,),
            ">i8",
            np.memmap(path, np.uint8, "r"),
            _STAMP_AT,
            (1,),
        )
        for path in (root / "commitlog").iterdir()
    }
    engine, _ = open_engine(folder / "scratch", StoreConfig(), folder / "log", read_only=False)
    data = engine.table_writer(Family.DEFAULT, folder / "units.sst")
    ends = engine.table_writer(Family.OFFSET, folder / "offset.sst")
    for queue in islice(keys, given["part"] * share, (given["part"] + 1) * share):
        path = root / "consumequeue" / queue.topic / str(queue.queue_id) / f"{0:020d}"
        found = np.fromfile(path, FILE_UNIT.dtype, given["max_units"])
        found = found[found["size"] > 0]
        rows = np.empty(len(found), UNIT_ROWS)
        rows["phy_offset"], rows["size"] = found["phy_offset"], found["size"]
        rows["tags_code"] = found["tags_code"]
        phy = found["phy_offset"].astype(np.int64)
        files = phy // LOG_FILE_BYTES * LOG_FILE_BYTES
        for start in np.unique(files).tolist():
            mine = files == start
            rows["store_timestamp"][mine] = stamps[start][phy[mine] - start]
        prefix = queue_prefix(*queue)
        data.put_units(prefix, 0, row_table(rows))
        ends.put(max_key(prefix), OFFSET_ENTRY.pack(OffsetEntry(int(phy[-1]), len(rows) - 1)))
    data.finish()
    ends.finish()
    engine.close(flush=False)
    return json.dumps([started, time.time()])
