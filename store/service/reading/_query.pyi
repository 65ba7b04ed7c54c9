from cqstore.store.index._chain import ChainFiles
from cqstore.store.log._log import PlainLog
from cqstore.store.service._results import QueryMessageResult

class FastQuery:
    def __init__(self, log: PlainLog, index: ChainFiles, file_size: int) -> None: ...
    def ask(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> QueryMessageResult | None: ...
