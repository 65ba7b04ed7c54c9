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
    def walk(
        self,
        found: list[int],
        wanted: int,
        max_num: int,
        begin: int,
        end: int,
        drained: int,
        is_checked: bool,
    ) -> bool: ...

class ChainFiles:
    closed: bool
    files: tuple[IndexFile, ...]
