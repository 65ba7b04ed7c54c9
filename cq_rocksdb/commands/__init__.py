"""``cqstore rocksdb``: statistics, audit and compaction of the RocksDB queues."""

import typer

from cqstore.cli.lazy_verbs import VerbGroup, add_verb

app = typer.Typer(
    cls=VerbGroup,
    help="Inspect and compact the RocksDB database of the queues.",
    no_args_is_help=True,
)

add_verb(
    app, "stats", "cqstore.cq_rocksdb.commands.stats:stats",
    "Show sizes, levels, tombstones and pending compaction of RocksDB. Changes nothing.",
)  # fmt: skip
add_verb(
    app, "audit", "cqstore.cq_rocksdb.commands.audit:audit",
    "Check keys, entries and units in RocksDB and list the errors. Changes nothing.",
)  # fmt: skip
add_verb(
    app, "compact", "cqstore.cq_rocksdb.commands.compact:compact",
    "Compact both column families to free the space of expired units and deleted topics.",
)  # fmt: skip
