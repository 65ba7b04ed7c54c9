from cqstore.store.index._chain import ChainFiles
from cqstore.store.log._log import FastLog
from cqstore.store.service._results import QueryMessageResult
from cqstore.store.service.reading.other_indexes import OtherIndexes

class FastQuery:
    def __init__(
        self,
        log: FastLog,
        index: ChainFiles | None,
        file_size: int,
        max_messages: int = ...,
        others: OtherIndexes | None = ...,
    ) -> None: ...
    def all_times(self, topic: str, key: str, max_num: int) -> QueryMessageResult | None: ...
    def query(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> QueryMessageResult | None: ...
