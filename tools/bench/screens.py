"""``tools.bench.screens``: the pictures of ``cqstore top`` and of an export in the documents.

A process puts messages to a store of its own, and writes offsets as a broker does; what the
commands print beside it, in a terminal's colours, becomes ``docs/top.svg``, ``docs/groups.svg`` and
``docs/export.svg``.
"""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from cqstore import Message, MessageStore, StoreConfig

_ROOT = Path(__file__).parents[2]
_COLUMNS = 100
_TOPICS = {"orders": 7, "payments": 4, "shipping": 2, "audit": 1}
"""How often a message goes to each."""
_SECONDS = 14.0
_WATCHED_SECONDS = 8.0
_GROUPS = {
    "billing": {"orders": 1.0, "payments": 0.98}, "shipping": {"orders": 0.97, "shipping": 0.9},
    "audit": dict.fromkeys(_TOPICS, 0.6), "reports": {"payments": 0.2},
}  # fmt: skip
"""What each has consumed, as a part of what was put."""
_FRAME = re.compile(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")
"""What rich writes between two looks."""


def main() -> None:
    """Make the pictures."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "store"
        with subprocess.Popen([sys.executable, "-m", "tools.bench.screens", str(root)]) as writer:
            while not (root / "consumequeue" / "audit").exists():
                time.sleep(0.05)
            top = ["top", "store", "--by", "topic", "--once"]
            _draw(top, Path(place), _ROOT / "docs" / "top.svg")
            groups = ["top", "store", "--by", "group"]
            _draw(groups, Path(place), _ROOT / "docs" / "groups.svg", watched=True)
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
        written = 0.0
        while time.monotonic() < end:
            if time.monotonic() - written > 1:
                _write_offsets(root, numbers)
                written = time.monotonic()
            for topic, times in _TOPICS.items():
                for _ in range(times):
                    number = numbers[topic]
                    numbers[topic] = number + 1
                    body = f'{{"id": {number}, "of": "{topic}"}}'.encode()
                    keys = {"KEYS": f"k{number}", "TAGS": "new"}
                    store.put_message(Message(topic, body, number % 4, properties=keys))
            time.sleep(0.005)


def _write_offsets(root: Path, numbers: dict[str, int]) -> None:
    """Write the offsets of the groups, as a broker does."""
    table = {
        f"{topic}@{group}": {queue: int(numbers[topic] // 4 * part) for queue in range(4)}
        for group, consumed in _GROUPS.items()
        for topic, part in consumed.items()
    }
    (root / "config").mkdir(exist_ok=True)
    unfinished = root / "config" / "consumerOffset.json.tmp"
    unfinished.write_text(json.dumps({"dataVersion": {}, "offsetTable": table}), encoding="utf-8")
    unfinished.rename(root / "config" / "consumerOffset.json")


def _draw(words: list[str], folder: Path, path: Path, *, watched: bool = False) -> None:
    """Run a command and draw its first lines as a picture."""
    environment = {
        **os.environ, "FORCE_COLOR": "1", "COLUMNS": str(_COLUMNS), "TERM": "xterm-256color",
    }  # fmt: skip
    command = [str(Path(sys.executable).with_name("cqstore")), *words]
    if watched:
        lines = _last_look(command, folder, environment).splitlines()
    else:
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


def _last_look(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Return what a terminal shows of a live view that was stopped after a while."""
    main_end, terminal = pty.openpty()
    shown = b""
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    ) as top:
        os.close(terminal)
        end = time.monotonic() + _WATCHED_SECONDS
        while time.monotonic() < end:
            shown += os.read(main_end, 65536)
        top.send_signal(signal.SIGINT)
    os.close(main_end)
    return _FRAME.split(shown.decode().replace("\r\n", "\n"))[-1]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        put(Path(sys.argv[1]))
    else:
        main()
