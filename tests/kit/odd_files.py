"""A process that meets files that are none: ``python -m tests.kit.odd_files STORE SCRATCH LIMIT``.

It reads cases from its standard input, a JSON list ``[file, kind]`` a line, and answers each with a
line: what every call ended with, and the most memory that the process has ever held, KiB.
"""

import contextlib
import io
import json
import os
import resource
import shutil
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from cqstore.cli import app
from cqstore.store.errors import StoreError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore

KINDS = ("fifo", "zero", "full", "folder", "socket")
READING = (("info",), ("check",), ("topics",), ("migrate", "status"))


def put_in_place(path: Path, kind: str) -> None:
    """Replace a file by something else."""
    path.unlink()
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "zero" | "full":
            path.symlink_to(f"/dev/{kind}")
        case "folder":
            path.mkdir()
        case "socket":
            here = Path.cwd()
            os.chdir(path.parent)  # bound to 107 bytes at most: RocksDB's log names are longer
            with socket.socket(socket.AF_UNIX) as made:
                made.bind("socket")
            Path("socket").rename(path.name)
            os.chdir(here)


def outcome(call: Callable[[], object]) -> str:
    """Return how a call ended; only a foreign error or a traceback is bad."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            call()
    except StoreError as exc:
        return f"{type(exc).__name__}: {exc}"
    except SystemExit as exc:
        text = said.getvalue()
        return f"bad: {text}" if "Traceback" in text else f"exit {exc.code}: {text[-200:]}"
    except BaseException:  # noqa: BLE001 - that is what is looked for
        return f"bad: {traceback.format_exc()}"
    return "fine"


def command(*words: str) -> None:
    with mock.patch.object(sys, "argv", ["cqstore", *words]):
        app.main()


def work(root: Path) -> None:
    with MessageStore.open(root) as store:
        store.put_message(Message("t", b"x", 0, {"KEYS": "k"}))
        store.flush()
        store.delete_topic("t")


def _max_resident() -> int:
    """Return the most KiB that this program has had; ``getrusage`` counts who started it too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main() -> None:
    store, scratch = Path(sys.argv[1]), Path(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]),) * 2)
    for line in sys.stdin:
        name, kind = json.loads(line)
        root = scratch / "store"
        shutil.copytree(store, root, symlinks=True)
        if name:
            put_in_place(root / name, kind)
        ends = {" ".join(words): outcome(lambda: command(*words, str(root))) for words in READING}  # noqa: B023
        ends["open"] = outcome(lambda: work(root))  # noqa: B023
        shutil.rmtree(root)
        most = _max_resident()
        print(json.dumps([name, kind, ends, most]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
