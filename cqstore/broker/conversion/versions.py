"""Check whether the data versions of a broker's tables contradict their file times.

File times show which form the last broker wrote, but a copy may not preserve them. Topics and
groups count each change in their ``dataVersion``; after a broker has merged one form, the other
form continues counting from there. Consumer offsets count only every 500 commits, so their version
proves nothing.

Source: RocketMQ ``DataVersion``, ``RocksDBTopicConfigManager.merge``.
"""

from cqstore.broker.metadata.json_form import read_json
from cqstore.broker.metadata.model import BrokerMetadata, DataVersion, Form, Table
from cqstore.broker.metadata.rocksdb_v1 import read_single, read_v1
from cqstore.broker.metadata.table_forms import TableForms, table_forms
from cqstore.store.paths import StorePaths

_COUNTED = {"topics": Table.TOPICS, "subscriptionGroups": Table.GROUPS}


def table_doubts(paths: StorePaths) -> list[str]:
    """Return a sentence for each table whose newest form is uncertain. Changes nothing.

    Raises:
        StoreError: a folder or database cannot be read.
    """
    tables = [
        table for table in table_forms(paths)
        if table.name in _COUNTED and table.form in {Form.JSON, Form.V1, Form.SINGLE}
        and table.databases
    ]  # fmt: skip
    if not tables:
        return []
    config = paths.config
    files = read_json(config)
    databases = [found for read in (read_v1, read_single) if (found := read(config)) is not None]
    if files is None:
        return []
    return [doubt for table in tables if (doubt := _doubt(table, files, databases))]


def _doubt(table: TableForms, files: BrokerMetadata, databases: list[BrokerMetadata]) -> str:
    """Return why it is uncertain which form of a table is newer; empty if it is certain."""
    key = _COUNTED[table.name]
    ours = files.versions.get(key)
    theirs = [found.versions[key] for found in databases if key in found.versions]
    if ours is None or not theirs or not (ours.counter or ours.timestamp):
        return ""  # only one form has a version: a file made by a tool may lack it
    newest = max(theirs, key=lambda version: (version.counter, version.timestamp))
    if ours == newest:
        return ""
    by_time = _FILE if table.form is Form.JSON else _DATABASE
    by_version = _newer(ours, newest)
    if by_version == by_time:
        return ""
    other = f"the {by_version} has the newer data version"
    reason = other if by_version else "the data versions do not show which one is newer"
    return (
        f"{table.name}: the {by_time} was modified later, but {reason} (dataVersion:"
        f" {_shown(ours)} in the file, {_shown(newest)} in the database)"
    )


_FILE, _DATABASE = "JSON file", "database"


def _newer(file: DataVersion, database: DataVersion) -> str | None:
    """Return the form with more changes and a later timestamp; ``None`` if they contradict."""
    counts = (file.counter > database.counter) - (file.counter < database.counter)
    times = (file.timestamp > database.timestamp) - (file.timestamp < database.timestamp)
    if counts * times < 0 or not counts + times:
        return None
    return _FILE if counts + times > 0 else _DATABASE


def _shown(version: DataVersion) -> str:
    return f"{version.counter} changes, the last at {version.timestamp} ms"
