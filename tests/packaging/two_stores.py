"""A script for an installed cqstore: writes to two RocksDB stores, prints what is logged."""

import logging
import sys
import tempfile
from pathlib import Path

from cqstore import Message, MessageStore


def main() -> None:
    """Open the stores one after the other."""
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("one", "two"):
            with MessageStore.open(Path(folder) / name, backend="rocksdb") as store:
                if not store.put_message(Message("orders", b"body")).ok:
                    raise SystemExit("a put was refused")


if __name__ == "__main__":
    main()
