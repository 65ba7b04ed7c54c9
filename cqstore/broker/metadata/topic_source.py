"""Reader of the topics in a broker's metadata; incomplete topics are an error."""

from pathlib import Path

from cqstore.broker.metadata.model import BrokerMetadata, Json, Table
from cqstore.broker.metadata.owned_table import whole_table
from cqstore.broker.metadata.table_forms import read_newest, table_forms
from cqstore.store.broker_files.known_topics import TopicTable
from cqstore.store.errors import RefusedStoreError
from cqstore.store.paths import StorePaths


def known_topics(config: Path) -> TopicTable | None:
    """Return the topics of the form that was written last; ``None`` if no form exists.

    Raises:
        CorruptionError: that form cannot be read completely.
        StoreIOError: that form cannot be read.
    """
    paths = StorePaths(config.parent)
    source = read_newest(config, table_forms(paths)).get(Table.TOPICS)
    if source is None:
        return None
    return TopicTable(source.form.value, whole_table(paths, Table.TOPICS, source).topics)


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
