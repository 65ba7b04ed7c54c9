"""Records as the core writes them, into memory: a put without a store around it."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.log._tail import FilePositions, LogTail
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.encoding_rules import EncodingRules
from cqstore.store.record.message import Message
from cqstore.store.record.message_copy import copy_message
from cqstore.store.service.dispatching._waiting import InFlight, Waiting
from cqstore.store.service.dispatching.delay import DelayLevels
from cqstore.store.service.runtime._flags import EnteredFlag, StateFlags
from cqstore.store.service.writing.encoded import add_encoded
from cqstore.store.service.writing.fast_put import fast_put
from cqstore.store.settings.config import StoreConfig
from tests.kit.shim.clock import CLOCK


class _File(FilePositions):
    """The one file of a log in memory."""

    def check_written(self, target: object) -> None:
        """No disk can lose it."""


class _Pending(Waiting):
    """What waits, and is never dispatched."""

    def __init__(self, config: StoreConfig) -> None:
        self.units, self.keys, self.last = UnitBatch(), IndexBatch(), None
        self.appending, self.lock = EnteredFlag(), threading.Lock()
        self.offsets = SimpleNamespace(next={})
        self.record_keys = SimpleNamespace(wanted=False, tags=False)
        self.delays = DelayLevels(config.message_delay_level)


class _Dispatcher(InFlight):
    pending: _Pending


class CoreEncoder:
    """Checks and encodes messages as a put does.

    ``room``: bytes that the longest record has room in.
    """

    def __init__(self, config: StoreConfig | None = None, *, room: int = 1 << 16) -> None:
        config = config or StoreConfig()
        self.rules = EncodingRules(config, lambda _: None)
        self._file, self._target = _File(), bytearray(room)
        log: Any = LogTail()
        log.current = log.prepared = self._file
        self._pending, dispatcher = _Pending(config), _Dispatcher()
        dispatcher.pending = self._pending
        state: Any = StateFlags()
        given: Any = dispatcher
        self._puts = fast_put(
            config.model_copy(update={"mapped_file_size_commit_log": room}), self.rules, log, given,
            state, alone=True,
        )  # fmt: skip

    def encode(
        self,
        message: Message,
        *,
        queue_offset: int = 0,
        phy_offset: int = 0,
        store_timestamp: int | None = None,
    ) -> bytes:
        """Return the record of ``message``, stored now unless it is said when.

        Raises:
            IllegalMessageError: no record can hold it.
        """
        with pytest.MonkeyPatch.context() as patch:
            if store_timestamp is not None:
                patch.setattr(CLOCK, "stopped", store_timestamp * 1_000_000)
            records = self._puts.encoded()
            add_encoded(records, copy_message(message), self.rules)
            records.sum()
            self._pending.offsets.next.clear()
            for queue in records.unassigned():
                self._pending.offsets.next[queue] = queue_offset
            self._file.file_from_offset, self._file.wrote_position = phy_offset, 0
            results: list[Any] = []
            records.append(self._target, results)
        return bytes(self._target[: self._file.wrote_position])
