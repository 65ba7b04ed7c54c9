"""A process that cleans topics, and kills itself at a change that it makes.

``python -m tests.kit.killed_cleaning COUNT ROOT``: three topics a slice, see ``killed_at_change``.
"""

import sys
from pathlib import Path

from cqstore.broker.cleaning.cleaning_round import CleaningRound, delete_from_store
from cqstore.broker.cleaning.rules import CleaningRules
from cqstore.broker.cleaning.tables import newest_tables
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.killed_at_change import run_until_killed

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000, max_hash_slot_num=10,
    max_index_num=50, rocksdb_memory_bytes=16 << 20,
)  # fmt: skip


def main() -> None:
    count, root = sys.argv[1:]
    rules = CleaningRules(unused=True, topics_per_second=3)
    with MessageStore.open(Path(root), CONFIG, housekeeping=False) as store:
        tables = newest_tables(components_of(store).paths)
        made = CleaningRound(store, rules, tables, delete_from_store(store), lambda _: False, 0.0)
        run_until_killed(int(count), lambda: list(made.topics()), root)


if __name__ == "__main__":
    main()
