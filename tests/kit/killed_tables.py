"""A log's tables that are opened by a process that kills itself, see ``killed_at_change``.

``python -m tests.kit.killed_tables COUNT ROOT``: the form is version 1.
"""

import sys
from pathlib import Path

from cqstore.broker.conversion.owned_tables import OwnedTables
from cqstore.store.paths import StorePaths
from cqstore.store.settings.config import StoreConfig
from tests.kit.killed_at_change import run_until_killed


def main() -> None:
    count, root = int(sys.argv[1]), sys.argv[2]
    config = StoreConfig(config_manager_version="v1")
    run_until_killed(
        count, lambda: OwnedTables(StorePaths(Path(root)), ["rocksdb"], config).stop(), root
    )


if __name__ == "__main__":
    main()
