from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.log.commit_log import Appended
from cqstore.store.queue.units import UnitBatch
from cqstore.store.service.dispatching.pending import Appends

class Waiting:
    units: UnitBatch
    keys: IndexBatch
    last: Appended | None

class InFlight:
    full_at: int
    handed: Appends
