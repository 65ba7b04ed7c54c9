"""Topics, groups and consumer offsets that decide which topics are deleted."""

from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form, Table
from cqstore.broker.metadata.table_forms import faults_of, table_forms
from cqstore.broker.metadata.topic_source import require_topics
from cqstore.store.errors import RefusedStoreError, StoreError
from cqstore.store.paths import StorePaths


def newest_tables(paths: StorePaths) -> BrokerMetadata:
    """Return each table in the form that was written last; a table without any form is empty.

    Raises:
        RefusedStoreError: a table cannot be read completely.
        StoreIOError: a folder cannot be read.
    """
    config = paths.config
    forms = {found.form: found for found in read_forms(paths)}
    newest = {each.table: forms.get(each.form) for each in table_forms(paths) if each.form}
    made = BrokerMetadata(Form.JSON, config)
    for table, found in newest.items():
        if found is None:
            continue
        _refuse_faults(faults_of(table, found, config))
        if table is Table.TOPICS:
            made.form, made.path, made.topics = found.form, found.path, found.topics
        elif table is Table.GROUPS:
            made.groups = found.groups
        else:
            made.offsets = found.offsets
    return made


def check_tables(tables: BrokerMetadata, *, unused: bool) -> None:
    """Refuse tables by which too many topics could be deleted.

    Raises:
        RefusedStoreError: a table is damaged; or there are no topics, and ``unused`` topics are to
            be deleted.
    """
    _refuse_faults(tables.faults)
    if unused:
        require_topics(tables)


def _refuse_faults(faults: list[StoreError]) -> None:
    if faults:
        raise RefusedStoreError(f"cannot clean topics: the broker metadata is damaged: {faults[0]}")
