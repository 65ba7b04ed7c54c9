"""Locations of a broker's metadata below ``config``: JSON files and databases.

Source: RocketMQ ``BrokerPathConfigHelper``, ``RocksDBTopicConfigManager.rocksdbConfigFilePath`` and
its siblings, ``ConfigStorage``.
"""

from pathlib import Path

from cqstore.broker.metadata.model import Form, Table
from cqstore.store.broker_files.file_names import (
    GROUPS_FILE,
    LMQ_OFFSETS_FILE,
    OFFSETS_FILE,
    TOPICS_FILE,
    backup_of,
)

FILES_OF_TABLE = {
    Table.TOPICS: (TOPICS_FILE,),
    Table.GROUPS: (GROUPS_FILE,),
    Table.OFFSETS: (OFFSETS_FILE, LMQ_OFFSETS_FILE),
}
"""Table → its JSON files; RocksDB's managers merge the first one."""
FILES = tuple(name for names in FILES_OF_TABLE.values() for name in names)
"""JSON files whose tables a RocksDB broker keeps in databases; delay levels stay a file."""
V1_FOLDERS = {
    Table.TOPICS: "topics",
    Table.GROUPS: "subscriptionGroups",
    Table.OFFSETS: "consumerOffsets",
}
SINGLE_FOLDER, V2_FOLDER = "metadata", "rdb"
"""Folders of databases with all tables, for ``useSingleRocksDBForAllConfigs`` and
``configManagerVersion=v2``."""


def names_of(form: Form) -> list[str]:
    """Return the possible names of a form in ``config``: files and backups, or databases."""
    match form:
        case Form.JSON:
            return [name for each in FILES for name in (each, backup_of(Path(each)).name)]
        case Form.V1:
            return list(V1_FOLDERS.values())
        case Form.SINGLE:
            return [SINGLE_FOLDER]
        case Form.V2:
            return [V2_FOLDER]
