from cqstore.store.index._chain import ChainFiles
from cqstore.store.log._log import FastLog
from cqstore.store.service._results import QueryMessageResult

class FastQuery:
    def __init__(self, log: FastLog, index: ChainFiles, file_size: int) -> None: ...
    def query(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> QueryMessageResult | None: ...
