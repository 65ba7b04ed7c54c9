"""Reader of the topics in a broker's metadata; incomplete topics are an error."""

from pathlib import Path

from cqstore.broker.metadata.model import BrokerMetadata, Json, Table
from cqstore.broker.metadata.table_forms import faults_of, read_newest, table_forms
from cqstore.store.broker_files.known_topics import TopicTable
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreIOError
from cqstore.store.paths import StorePaths


def known_topics(config: Path) -> TopicTable | None:
    """Return the topics of the form that was written last; ``None`` if no form exists.

    Raises:
        CorruptionError: that form cannot be read completely.
        StoreIOError: that form cannot be read.
    """
    sources = read_newest(config, table_forms(StorePaths(config.parent)))
    source = sources.get(Table.TOPICS)
    if source is None:
        return None
    for fault in faults_of(Table.TOPICS, source, config):
        if isinstance(fault, StoreIOError):
            raise fault
        raise CorruptionError(
            f"the broker's topics cannot be read from the form {source.form}: {fault.reason}",
            path=fault.path,
        ) from fault
    return TopicTable(source.form.value, source.topics)


def require_topics(metadata: BrokerMetadata) -> dict[str, Json]:
    """Return the topics that ``metadata`` configures, for a caller that looks for missing ones.

    Raises:
        RefusedStoreError: the metadata is missing or damaged, or has no topics.
    """
    if metadata.faults:
        raise RefusedStoreError(
            f"cannot find unused topics: the broker metadata is damaged: {metadata.faults[0]}"
        )
    if not metadata.topics:
        raise RefusedStoreError(
            "cannot find unused topics: the broker metadata has no topics", path=metadata.path
        )
    return metadata.topics
