"""``cqstore rocksdb``: what RocksDB itself knows of a store's queues, and its compaction."""

import typer

from cqstore.cli.lazy_verbs import VerbGroup, add_verb

app = typer.Typer(
    cls=VerbGroup, help="Look into the RocksDB that holds the queues.", no_args_is_help=True
)

add_verb(
    app, "stats", "cqstore.cq_rocksdb.commands.stats:stats",
    "Show levels, bytes, tombstones, debts of compaction and sizes of topics. Changes nothing.",
)  # fmt: skip
add_verb(
    app, "audit", "cqstore.cq_rocksdb.commands.audit:audit",
    "Compare keys, entries and units with each other and list what is wrong. Changes nothing.",
)  # fmt: skip
add_verb(
    app, "compact", "cqstore.cq_rocksdb.commands.compact:compact",
    "Compact both families, so that expired units and deleted topics leave the disk.",
)  # fmt: skip
