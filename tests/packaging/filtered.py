"""A script for an installed cqstore: expires units, compacts, says what a filter dropped."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from cqstore import Message, MessageStore, StoreConfig

FILE_BYTES = 1 << 16


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the installation, which must end well."""
    cqstore = Path(sys.executable).with_name("cqstore")
    return subprocess.run([str(cqstore), *words], capture_output=True, check=True, text=True)


def main() -> None:
    """Print whether compactions filter, and how many expired units are left."""
    with tempfile.TemporaryDirectory() as folder:
        config = StoreConfig(mapped_file_size_commit_log=FILE_BYTES)
        with MessageStore.open(Path(folder), config, backend="rocksdb") as store:
            if not all(store.put_message(Message("orders", b"x" * 1000)).ok for _ in range(200)):
                raise SystemExit("a put was refused")
            store.delete_expired_files(2 * FILE_BYTES)
        done = json.loads(command("rocksdb", "compact", folder, "--output", "json").stdout)
        left = command("rocksdb", "audit", folder).stderr
    found = {"filters": done["droppedUnits"] is not None, "audit": left}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
