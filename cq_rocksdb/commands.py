"""``cqstore rocksdb``: what RocksDB itself knows of a store's queues, and its compaction."""

import typer

from store.cli.verbs import VerbGroup, add_verb

app = typer.Typer(
    cls=VerbGroup, help="Look into the RocksDB that holds the queues.", no_args_is_help=True
)

add_verb(
    app, "stats", "cq_rocksdb.verbs:stats",
    "Show levels, bytes, tombstones, debts of compaction and sizes of topics. Changes nothing.",
)  # fmt: skip
add_verb(
    app, "audit", "cq_rocksdb.verbs:audit",
    "Compare keys, entries and units with each other and list what is wrong. Changes nothing.",
)  # fmt: skip
add_verb(
    app, "compact", "cq_rocksdb.verbs:compact",
    "Compact both families, so that expired units and deleted topics leave the disk.",
)  # fmt: skip
