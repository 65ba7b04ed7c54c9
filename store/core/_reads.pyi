from store.core._maps import FileMap
from store.index.index_service import IndexService
from store.log._log import PlainLog
from store.record.interpreted_message import PyMessageView

def walk_chain(
    before: list[int],
    file: FileMap,
    slots: int,
    entries: int,
    wanted: int,
    most: int,
    begin: int,
    end: int,
    began: int,
    drained: int,
    read_only: bool,
) -> list[int] | None: ...

class FastQuery:
    def __init__(
        self, log: PlainLog, index: IndexService, file_class: type, file_size: int, most: int
    ) -> None: ...
    def ask(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> list[PyMessageView] | None: ...
