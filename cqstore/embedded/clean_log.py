"""Deletion of the topics of an embedded log by rules, see ``cqstore.broker.cleaning``."""

from collections.abc import Mapping, Sequence

from cqstore.broker.cleaning.cleaning_round import Deleter, IsDue, delete_from_store
from cqstore.broker.cleaning.rules import CleaningRules, KeptReason
from cqstore.broker.cleaning.topic_cleaner import TopicCleaner, start_cleaner
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.embedded.consumer_offsets import ConsumerOffsets
from cqstore.embedded.group_members import LogMembers
from cqstore.embedded.log_topics import LogTopics
from cqstore.store.errors import RefusedStoreError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of


def clean_log(
    store: MessageStore, topics: LogTopics, offsets: ConsumerOffsets, members: LogMembers,
    rules: CleaningRules, every: float, *, dry_run: bool,
) -> TopicCleaner:  # fmt: skip
    """Start a service, see ``EmbeddedLog.clean_topics``.

    Raises:
        StoreError: as for ``EmbeddedLog.clean_topics``.
    """
    config = components_of(store).paths.config

    def tables() -> BrokerMetadata:
        return BrokerMetadata(Form.JSON, config, topics=topics.rows(), offsets=offsets.rows())

    def deleter(owner: MessageStore) -> Deleter:
        return _deleter(delete_from_store(owner), topics, members)

    return start_cleaner(store, rules, every, tables, None if dry_run else deleter)


def _deleter(delete: Deleter, table: LogTopics, members: LogMembers) -> Deleter:
    """Return a function that deletes topics without open consumers, and their rows in the table."""

    def delete_unread(topics: Sequence[str], is_due: IsDue) -> Mapping[str, KeptReason]:
        kept: dict[str, KeptReason] = {}
        for topic in topics:
            try:
                members.forget(topic)
            except RefusedStoreError:
                kept[topic] = KeptReason.CONSUMERS
        kept |= delete([topic for topic in topics if topic not in kept], is_due)
        table.forget([topic for topic in topics if topic not in kept])
        return kept

    return delete_unread
