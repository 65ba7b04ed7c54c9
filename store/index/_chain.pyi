from cqstore.store.core._maps import FileMap
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.index.index_file import IndexFile
from cqstore.store.index.layout import IndexGeometry

class ChainFile:
    read_only: bool
    begin_timestamp: int
    end_timestamp: int
    geometry: IndexGeometry
    waiting: tuple[IndexBatch, int]
    mapped: FileMap | None

class ChainFiles:
    closed: bool
    files: tuple[IndexFile, ...]

def walk_chain(
    before: list[int],
    file: FileMap,
    slots: int,
    entries: int,
    wanted: int,
    max_num: int,
    begin: int,
    end: int,
    began: int,
    drained: int,
    read_only: bool,
) -> list[int] | None: ...
