from cqstore.cq_rocksdb.engine._database import Database
from cqstore.cq_rocksdb.engine._groups import QueueGroups
from cqstore.cq_rocksdb.engine._states import StateTable
from cqstore.cq_rocksdb.engine._write_batch import WriteBatchColumns

class AppendJob(QueueGroups):
    def find(self, table: StateTable) -> list[bytes]: ...
    def rest(self, rows: object) -> None: ...
    def follows(self) -> bool: ...
    def irregular_queues(self) -> bytes | None: ...
    def move(self, table: StateTable) -> None: ...
    def write(
        self,
        database: Database,
        family: int,
        key: bytes,
        value: bytes,
        others: WriteBatchColumns | None = None,
    ) -> None: ...
    def built(self, database: Database, family: int, key: bytes, value: bytes) -> bytes: ...

def batch_bytes(
    database: Database,
    family: int,
    units: list[tuple[bytes, bytes]],
    puts: list[tuple[bytes, bytes]],
) -> bytes: ...
