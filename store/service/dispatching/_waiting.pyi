from store.index.index_batch import IndexBatch
from store.log.commit_log import Appended
from store.queue.units import UnitBatch
from store.service.dispatching.pending import Appends

class Waiting:
    units: UnitBatch
    keys: IndexBatch
    last: Appended | None

class InFlight:
    full_at: int
    handed: Appends
