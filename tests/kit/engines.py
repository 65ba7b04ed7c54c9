"""The RocksDB engines that the tests go through, and verbs that reach below them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from cqstore.cq_rocksdb.engine.choice import engine_works
from cqstore.cq_rocksdb.engine.rocks_engine import Family, RocksEngine
from cqstore.cq_rocksdb.engine.rocksdict_engine import RocksdictEngine
from cqstore.store.settings.config import RocksDBEngine

_IN_USE: ContextVar[RocksDBEngine] = ContextVar("engine", default=RocksDBEngine.AUTO)
ENGINES = [
    engine for engine in (RocksDBEngine.ROCKSDICT, RocksDBEngine.NATIVE) if engine_works(engine)
]


def engine_in_use() -> RocksDBEngine:
    """Return the engine that stores are to be opened with."""
    return _IN_USE.get()


@contextmanager
def using(engine: RocksDBEngine) -> Iterator[None]:
    """Open stores with ``engine`` inside the block."""
    token = _IN_USE.set(engine)
    try:
        yield
    finally:
        _IN_USE.reset(token)


def put_raw(engine: RocksEngine, key: bytes, value: bytes, path: Path) -> None:
    """Bring any key and value into the family of units, by way of a table file."""
    writer = engine.table_writer(Family.DEFAULT, path)
    writer.put(key, value)
    writer.finish()
    engine.ingest(Family.DEFAULT, [path])


def flush_units_alone(engine: RocksEngine) -> None:
    """Flush one family of the two, as a crash between two flushes would leave it."""
    if isinstance(engine, RocksdictEngine):
        engine._default.flush()
    else:
        engine._database.flush(0)  # type: ignore[attr-defined]


def hold_compactions(engine: RocksEngine) -> None:
    """Let no table file vanish, so that the open folder can be copied as a crash would leave it."""
    for number, family in enumerate(Family):
        if isinstance(engine, RocksdictEngine):
            engine._families[family].set_options({"disable_auto_compactions": "true"})
        else:
            engine._database.set_options(number, b"disable_auto_compactions", b"true")  # type: ignore[attr-defined]
