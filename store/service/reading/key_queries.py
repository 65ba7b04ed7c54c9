"""KeyQueries: messages by key, from the index in files and from other indexes of a broker.

Source: RocketMQ ``DefaultMessageStore.queryMessage``.
"""

from cqstore.store.errors import CorruptionError, StoreError
from cqstore.store.index.index_service import IndexService
from cqstore.store.java_numbers import LONG_MAX
from cqstore.store.log._log import FastLog
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.read_fallbacks import FallbackReason, ReadFallbacks, ReadKind
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import MessageProperty
from cqstore.store.service.reading import _query
from cqstore.store.service.reading.other_indexes import OtherIndexes
from cqstore.store.service.reading.store_times import ALL, TimeRange
from cqstore.store.service.results import QueryMessageResult
from cqstore.store.settings.config import StoreConfig

_MORE = 8
"""Factor for the number of entries to read if entries of other keys fill a result."""


class KeyQueries:
    """Serves queries by key of one store. Any thread; the caller has dispatched waiting units."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        index: IndexService | None,
        others: OtherIndexes,
        fallbacks: ReadFallbacks,
        *,
        read_only: bool,
        left_out: StoreError | None = None,
    ) -> None:
        """Set the log with ``index``, ``None`` without an index in files, and ``others``.

        ``left_out``: why an existing index in files cannot be read.
        """
        self._left_out = left_out
        self._log = log
        self._index = index
        self._fallbacks = fallbacks
        self._read_only = read_only
        is_bounded = "max_msgs_num_batch" in config.model_fields_set
        self._max_messages = config.max_msgs_num_batch if is_bounded else LONG_MAX
        self.others = others
        """Indexes of keys in addition to the one in files."""
        is_whole = left_out is None and (index is None or index.faults.error is None)
        self.fast = _query.FastQuery(
            FastLog(log), index, log.files.file_size, self._max_messages,
            others if is_whole else None,
        )  # fmt: skip
        """The compiled queries, which leave what is not plain to this class."""

    def in_all(
        self, topic: str, key: str, max_num: int, times: TimeRange = ALL
    ) -> QueryMessageResult:
        """Return the messages from all indexes, see ``MessageStore.query_message``.

        Raises:
            CorruptionError, StoreIOError, UnsupportedFormatError: an index cannot be read
                completely.
        """
        if self._left_out is not None:
            raise self._left_out.with_traceback(None)
        if self._index is not None and (fault := self._index.faults.error) is not None:
            raise fault
        found = self.in_files(topic, key, max_num, times)
        if self.others.are_none:
            return found
        limit = max(min(max_num, self._max_messages), 0)
        both = self.others.newest(self.messages_with_key, found, topic, key, limit + 1, times)
        answer = newest_of(both, limit)
        answer.has_more |= found.has_more
        return answer

    def in_files(
        self, topic: str, key: str, max_num: int, times: TimeRange = ALL
    ) -> QueryMessageResult:
        """Return the messages from the index in files, see ``MessageStore.query_index_files``."""
        if self._index is None:
            return QueryMessageResult()
        found = self.fast.query(topic, key, max_num, *times)
        if found is None:
            limit = max(min(max_num, self._max_messages), 0)
            found = newest_of(self._declined(self._index, topic, key, limit + 1, times), limit)
        return found

    def _declined(
        self, index: IndexService, topic: str, key: str, limit: int, times: TimeRange
    ) -> list[StoredMessage]:
        """Return the newest messages if compiled code has declined the query."""
        self._fallbacks.add(ReadKind.QUERY, FallbackReason.DECLINED)
        max_places = limit  # for any time: the index has seconds, and ends at the first too early
        while True:
            places = index.query(topic, key, max_places, *ALL)
            found = times.of(self.messages_with_key(topic, key, sorted(places)))
            if len(found) >= limit or len(places) < max_places:
                return found[-limit:]
            max_places *= _MORE  # some were of another key with the same hash, or of another time

    def messages_with_key(
        self, topic: str, key: str, phy_offsets: list[int]
    ) -> list[StoredMessage]:
        """Return the records that have topic and key; expired ones are left out.

        Raises:
            CorruptionError: no record starts at an offset, although the log contains it.
        """
        found = []
        for phy_offset in phy_offsets:
            message = self._unless_expired(phy_offset)
            if message is None:
                continue
            properties = message.properties
            keys = properties.get(MessageProperty.KEYS, "").split(" ")
            if (
                message.topic == topic
                and not message.is_passed_over
                and (key in keys or key == properties.get(MessageProperty.UNIQ_KEY))
            ):
                found.append(message)
        return found

    def _unless_expired(self, phy_offset: int) -> StoredMessage | None:
        """Return the message at ``phy_offset``, ``None`` if it has expired, also just now.

        Also ``None`` if it was appended after this read-only store was opened: another process may
        add to the index meanwhile.

        Raises:
            CorruptionError: no message starts there, although the log contains the offset.
        """
        log = self._log
        try:
            return log.message(phy_offset)
        except CorruptionError:
            if phy_offset < log.min_phy_offset():
                return None
            if self._read_only and phy_offset >= log.max_phy_offset():
                return None
            raise


def newest_of(found: list[StoredMessage], limit: int) -> QueryMessageResult:
    """Return the newest ``limit`` of messages in log order, and whether there are others."""
    has_more = len(found) > limit
    return QueryMessageResult(found[len(found) - limit :] if has_more else found, has_more=has_more)
