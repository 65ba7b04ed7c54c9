"""PutFastPath: the compiled path of most messages, from the message to its position in one call.

A message that it accepts is put completely, under the GIL. All others go to ``Putter`` and
``Appender``: they decide what may be put, and where, and compiled code encodes and writes these
messages too (``Encoded``).
"""

from collections.abc import Iterable
from typing import Literal, Protocol

from cqstore.store.index.index_batch import TAGS_PREFIX
from cqstore.store.log.commit_log import Appended, CommitLog
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.encoding_rules import EncodingRules
from cqstore.store.record.message import SCHEDULE_TOPIC, Host, Message
from cqstore.store.record.properties import crc_property
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from cqstore.store.service.runtime.running_state import RunningState
from cqstore.store.service.writing import _encoded, _put
from cqstore.store.service.writing.encoded import Encoded
from cqstore.store.settings.config import StoreConfig

SAMPLED_PUTS = 61
"""One in this many asynchronous puts of one message is timed: reading a clock is too expensive for
each. A prime, so that it does not coincide with the rhythm of the batches."""


class PutFastPath(Protocol):
    """Puts plain messages of one store. Any thread.

    Not plain are messages with a property that may request light queues or a delay, long bodies and
    lists, invalid messages, those of a queue or topic not used recently, and any message if the
    log's file is full, another thread appends, or writing is not allowed.
    """

    def quick(self, message: Message) -> PutMessageResult | Literal[False] | None:
        """Put a message if no other work is due.

        ``None``: nothing was done, because other work is due: puts wait for disk or followers, the
        message fills the batch of units, or it is the next of ``SAMPLED_PUTS``, which is timed.
        ``False``: nothing was done, and ``one`` would do nothing either.
        """

    def one(self, message: Message) -> PutMessageResult | None:
        """Put a message; ``None``: nothing was done, it must take the slow path."""

    def several(self, messages: Iterable[Message]) -> list[PutMessageResult] | None:
        """Put all, in order, with one store time, into one file; ``None``: nothing was done."""

    def batch(self, batch: Message) -> list[PutMessageResult] | None:
        """Put the messages of a client batch that was checked; ``None``: nothing was done."""

    def encoded(self) -> Encoded:
        """Return an object for the messages of a put that takes the slow path, one by one."""


def fast_put(
    config: StoreConfig,
    rules: EncodingRules,
    log: CommitLog,
    dispatcher: Dispatcher,
    state: RunningState,
    *,
    alone: bool,
) -> PutFastPath:
    """Return the fast path for these settings.

    ``alone``: a put waits for neither disk nor followers.
    """
    pending = dispatcher.pending
    made: PutFastPath = _put.FastPut(
        log=log,
        pending=pending,
        state=state,
        dispatcher=dispatcher,
        topics=rules.topics,
        scheduled=SCHEDULE_TOPIC,
        classes=(Host, Appended, PutMessageResult, QueueKey),
        encoded=_encoded.EncodedMessages,
        ok=PutMessageStatus.PUT_OK,
        tags_prefix=TAGS_PREFIX,
        max_body=config.max_message_size,
        file_size=config.mapped_file_size_commit_log,
        keys_wanted=pending.record_keys.wanted,
        tags_wanted=pending.record_keys.tags,
        alone=alone,
        every=SAMPLED_PUTS,
        seal=crc_property(0) if config.enabled_append_prop_crc else None,
        reads_delay=not config.allow_delay_without_service,
        delays=pending.delays.tags_code,
    )
    return made
