"""A script for an installed cqstore: puts and gets on both backends, says what runs.

With ``compiled`` as its argument it fails where a compiled part is missing, as no wheel may.
"""

import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from cqstore import Message, MessageStore

COUNT, QUEUES = 100, 4


def put_and_get(root: Path, backend: str) -> None:
    """Put, and get the same from a store that is opened again."""
    messages = [
        Message(
            "orders", b"order %d" % number, number % QUEUES, {"TAGS": "a", "KEYS": f"k{number}"}
        )
        for number in range(COUNT)
    ]
    with MessageStore.open(root, backend=backend) as store:
        if not all(store.put_message(message).ok for message in messages):
            raise SystemExit(f"{backend}: a put was refused")
    with MessageStore.open(root, read_only=True) as store:
        for queue_id in range(QUEUES):
            found = store.get_message("orders", queue_id, 0).messages()
            if [message.body for message in found] != [m.body for m in messages[queue_id::QUEUES]]:
                raise SystemExit(
                    f"{backend}: what was put into queue {queue_id} does not come back"
                )
        if [message.body for message in store.query_message("orders", "k7")] != [b"order 7"]:
            raise SystemExit(f"{backend}: a key is not found")


def left_out() -> list[str]:
    """Return the modules that are installed as their sources alone."""
    root = Path(str(find_spec("cqstore").origin)).parents[1]  # type: ignore[union-attr]
    sources = (root / "cqstore").rglob("_*.pyx")
    names = [".".join(path.relative_to(root).with_suffix("").parts) for path in sources]
    if not names:
        raise SystemExit(f"no sources of compiled modules are in {root}")
    return [name for name in names if find_spec(name) is None]


def reported(root: Path) -> dict[str, str]:
    """Return what ``cqstore info`` says of the engine."""
    cqstore = Path(sys.executable).with_name("cqstore")
    command = [str(cqstore), "info", str(root), "--output", "json"]
    done = subprocess.run(command, capture_output=True, check=True)
    facts = json.loads(done.stdout)["queue_facts"]
    return {name: facts[name] for name in ("engine",) if name in facts}


def main() -> None:
    """Print a line of JSON: what runs, and why."""
    missing = left_out()
    if sys.argv[1:2] == ["compiled"] and missing:
        raise SystemExit(f"not compiled: {', '.join(missing)}")
    found: dict[str, object] = {"native": not missing}
    for backend in sys.argv[2:] or ("file", "rocksdb"):
        with tempfile.TemporaryDirectory() as folder:
            put_and_get(Path(folder), backend)
            found |= {backend: reported(Path(folder))}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
