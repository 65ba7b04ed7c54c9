"""``cqstore rocksdb``: statistics, audit and compaction of the RocksDB queues."""

import typer

from cqstore.cli.lazy_verbs import VerbGroup, add_verb

app = typer.Typer(
    cls=VerbGroup,
    help="Inspect and compact the RocksDB database of the queues.",
    no_args_is_help=True,
)

add_verb(app, "stats", "cqstore.cq_rocksdb.commands.stats:stats")
add_verb(app, "audit", "cqstore.cq_rocksdb.commands.audit:audit")
add_verb(app, "compact", "cqstore.cq_rocksdb.commands.compact:compact")
