"""Plans of which several tasks read the units, and what a plan must hold by another algorithm."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np

from cqstore.migration import tasks
from cqstore.migration.plan import parts
from cqstore.migration.plan.plan import Plan
from cqstore.migration.plan.planner import make_plan
from cqstore.store.queue.bulk import UNIT_ROWS, bulk_backend, key_order
from cqstore.store.queue.queue_location import queue_context
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

SEGMENT_UNITS = 400


def target_of(root: Path) -> str:
    """Return the backend to which the store in ``root`` can be moved."""
    return "file" if (root / "consumequeue" / "CURRENT").exists() else "rocksdb"


def plan_in_parts(root: Path, queues: int = 3, *, processes: bool = False) -> Plan:
    """Plan with parts of so many queues, read in this process or in others."""

    def one_by_one(task, items, _master, tick, **_):  # type: ignore[no-untyped-def]
        texts = []
        for done, item in enumerate(items):
            texts.append(task(item))
            tick(done)
        return texts

    run = tasks.run_tasks if processes else one_by_one
    with patch.object(parts, "PART_QUEUES", queues), patch.object(parts, "run_tasks", run):
        return make_plan(root, target=target_of(root), segment_units=SEGMENT_UNITS)


def expected_lines(root: Path, plan: Plan) -> Iterator[list[object]]:
    """Yield the lines of a plan, one queue after the other, as one process reads them."""
    config, folders = plan.config, [Path(each) for each in plan.log_folders]
    step = bulk_backend(plan.target).slice_units(config)
    limit = max(SEGMENT_UNITS // step, 1) * step
    with MessageStore.open(root, read_only=True) as store:
        queues = components_of(store).queues.backends()[0]
        context = queue_context(components_of(store).paths, folders, config)
        source = bulk_backend(plan.source).source(context)
        for key in sorted(queues.queues(), key=key_order):
            begin, end = queues.queue(*key).ends()
            at = min(begin, end)
            while end:
                stop = min(at // step * step + limit, end)
                rows = np.empty(stop - at, UNIT_ROWS)
                assert source.fill(key, at, rows) == len(rows)
                yield [*key, at, stop, end if stop == end else None, zlib.crc32(rows.tobytes())]
                if stop == end:
                    break
                at = stop
        source.close()


def planned_lines(slices: Path) -> list[list[object]]:
    """Return the lines of a plan's queues."""
    return [json.loads(line) for line in slices.read_text().splitlines()]
