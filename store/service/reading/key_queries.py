"""KeyQueries: messages by key, out of the index in files and out of what a broker kept beside it.

Source: RocketMQ ``DefaultMessageStore.queryMessage``.
"""

from cqstore.store.errors import CorruptionError, StoreError
from cqstore.store.index.index_service import IndexService
from cqstore.store.log._log import PlainLog
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.read_fallbacks import FallbackReason, ReadFallbacks, ReadKind
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import MessageProperty
from cqstore.store.service.reading import _query
from cqstore.store.service.reading.arguments import check_query
from cqstore.store.service.reading.other_indexes import OtherIndexes
from cqstore.store.settings.config import StoreConfig

_MORE = 8
"""How many times as many places are asked for where those of another key fill an answer."""


class KeyQueries:
    """Answers queries by key of one store. Any thread; the caller has had what waits dispatched."""

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
        """Take the log with ``index``, ``None`` if there is none in files, and ``others``.

        ``left_out``: why there is an index in files that cannot be read.
        """
        self._left_out = left_out
        self._log = log
        self._index = index
        self._fallbacks = fallbacks
        self._read_only = read_only
        self._max_messages = config.max_msgs_num_batch
        self._fast = None if index is None else _fast_query(log, index, config)
        self.others = others
        """Indexes of keys beside that in files."""

    def in_all(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> list[StoredMessage]:
        """Return what all indexes know, see ``MessageStore.query_message``.

        Raises:
            TypeError: an argument is of another type.
            CorruptionError, StoreIOError, UnsupportedFormatError: an index cannot be read, or not
                all of it.
        """
        check_query(topic, key, max_num, begin, end)
        if self._left_out is not None:
            raise self._left_out.with_traceback(None)
        if self._index is not None and (fault := self._index.faults.error) is not None:
            raise fault
        find = self.in_files
        if self.others.are_none and self._fast is not None:
            answer = self._fast.ask(topic, key, max_num, begin, end)
            if answer is not None:
                return answer
            find = self._in_files_declined
        found = find(topic, key, max_num, begin, end)
        if not self.others.are_none:
            found = self._with_others(found, topic, key, max_num, begin, end)
        return found

    def in_files(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> list[StoredMessage]:
        """Return what the index in files knows, see ``MessageStore.query_index_files``."""
        if self._index is None or self._fast is None:
            return []
        found = self._fast.ask(topic, key, max_num, begin, end)
        return self._in_files_declined(topic, key, max_num, begin, end) if found is None else found

    def _in_files_declined(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> list[StoredMessage]:
        """Return what ``in_files`` does where compiled code has declined the query."""
        assert self._index is not None
        self._fallbacks.add(ReadKind.QUERY, FallbackReason.DECLINED)
        limit = asked = min(max_num, self._max_messages)
        while True:
            places = self._index.query(topic, key, asked, begin, end)
            found = self.messages_with_key(topic, key, sorted(places))
            if len(found) >= limit or len(places) < asked:
                return found[-limit:] if limit > 0 else []
            asked *= _MORE  # records of another key that has the same hash came first

    def _with_others(
        self, found: list[StoredMessage], topic: str, key: str, max_num: int, begin: int, end: int
    ) -> list[StoredMessage]:
        """Return the newest messages of ``found`` and of what the other indexes know."""
        limit = min(max_num, self._max_messages)
        return self.others.newest(self.messages_with_key, found, topic, key, limit, begin, end)

    def messages_with_key(
        self, topic: str, key: str, phy_offsets: list[int]
    ) -> list[StoredMessage]:
        """Return those of the records that have topic and key; what has left the log is left out.

        Raises:
            CorruptionError: no record starts at one of them, though the log holds the place.
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
        """Return the message at ``phy_offset``, ``None`` if it has left the log, also just now.

        Likewise if this store was opened to read before it was appended: another process may add
        to the index meanwhile.

        Raises:
            CorruptionError: none starts there, though the log holds the place.
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


def _fast_query(log: CommitLog, index: IndexService, config: StoreConfig) -> _query.FastQuery:
    return _query.FastQuery(PlainLog(log), index, log.files.file_size, config.max_msgs_num_batch)
