from cqstore.store.index._chain import ChainFiles
from cqstore.store.log._log import PlainLog
from cqstore.store.record.interpreted_message import PyMessageView

class FastQuery:
    def __init__(self, log: PlainLog, index: ChainFiles, file_size: int) -> None: ...
    def ask(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> list[PyMessageView] | None: ...
