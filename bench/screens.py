"""``python -m bench.screens``: the pictures of ``cqstore top`` and of an export in the documents.

A process puts messages to a store of its own; what the commands print beside it, in a terminal's
colours, becomes ``docs/top.svg`` and ``docs/export.svg``.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from cqstore import Message, MessageStore, StoreConfig

_ROOT = Path(__file__).parents[1]
_COLUMNS = 100
_TOPICS = {"orders": 7, "payments": 4, "shipping": 2, "audit": 1}
"""How often a message goes to each."""
_SECONDS = 8.0


def main() -> None:
    """Make both pictures."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "store"
        with subprocess.Popen([sys.executable, "-m", "bench.screens", str(root)]) as writer:
            while not (root / "consumequeue" / "audit").exists():
                time.sleep(0.05)
            top = ["top", "store", "--by", "topic", "--once"]
            _draw(top, Path(place), _ROOT / "docs" / "top.svg")
            writer.wait()
        export = ["export", "store", "--topic", "orders", "--grep", "1[0-9]7,", "--format",
                  "%T %q:%o %k %b"]  # fmt: skip
        _draw(export, Path(place), _ROOT / "docs" / "export.svg")


def put(root: Path) -> None:
    """Put some thousand messages a second for some seconds."""
    config = StoreConfig(mapped_file_size_commit_log=1 << 24)
    numbers = dict.fromkeys(_TOPICS, 0)
    with MessageStore.open(root, config) as store:
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            for topic, times in _TOPICS.items():
                for _ in range(times):
                    number = numbers[topic]
                    numbers[topic] = number + 1
                    body = f'{{"id": {number}, "of": "{topic}"}}'.encode()
                    keys = {"KEYS": f"k{number}", "TAGS": "new"}
                    store.put_message(Message(topic, body, number % 4, properties=keys))
            time.sleep(0.005)


def _draw(words: list[str], folder: Path, path: Path) -> None:
    """Run a command and draw its first lines as a picture."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(_COLUMNS)}
    command = [str(Path(sys.executable).with_name("cqstore")), *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()[:24]
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=_COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi("\n".join(lines)))
        shown = " ".join(f"'{word}'" if re.search(r"[ \[%]", word) else word for word in words)
        text = console.export_svg(title=f"cqstore {shown}", unique_id=path.stem)
    # No font is fetched: a reader's own monospaced one will do.
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        put(Path(sys.argv[1]))
    else:
        main()
