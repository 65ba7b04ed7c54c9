"""What is typed, and what must be said: a line of ``inputs.txt`` an input.

Each line goes through ``main``, in this process: what is refused becomes a sentence and an exit
code there alone, which no runner of typer's passes. What a process of its own says, and how it
ends, ``test_streams.py`` and others show.
"""

import gc
import io
import os
import re
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from cqstore.cli.app import EXIT_REFUSED, app, main
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.any_topics import any_topics
from tests.kit.tree import tree_digest
from tests.kit.verbs import never_reported

INPUTS = Path(__file__).parent / "inputs.txt"
SIZES = {
    "mapped_file_size_commit_log": 1 << 16, "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 50, "max_index_num": 100, "rocksdb_memory_bytes": 16 << 20,
}  # fmt: skip
SMALL = StoreConfig(**SIZES)
PUT = (("orders", 0), ("orders", 1), ("orders", 2), ("payments", 7), ("zahlungen-é", 0))
COLORS, FRAMES = re.compile(r"\x1b\[[\d;]*m"), re.compile("\u2502")
"""What stands between words where the environment asks for colours, and around an error."""
LONG_AGO = 1_700_000_000
DAMAGED_AT = 60
"""In the body or properties of the log's first message, whose checksum tells it."""
CONFS = {
    "conf": b"fileReservedTime=48\nmappedFileSizeCommitLog=65536\n",
    "binary": b"\x00\xff\xfe\x80" * 40,
    "misspelt": b"fileReservedTme=48\n",
    "elsewhere": b"storePathRootDir=/srv/other/store\n",
}
TOPICS = '{"dataVersion": {}, "topicConfigTable": {"orders": {"topicName": "orders", ' \
    '"readQueueNums": 3, "writeQueueNums": 3, "perm": 6}}}'  # fmt: skip
OFFSETS = '{"dataVersion": {}, "offsetTable": {"orders@billing": {"0": 1, "1": 0}}}'


@dataclass(frozen=True)
class Line:
    """One input: the words behind ``cqstore``, and how it must end."""

    number: int
    writes: bool
    words: tuple[str, ...]
    code: int
    said: tuple[str, ...]
    unsaid: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.number}: {' '.join(self.words)}"


def _parsed(number: int, text: str) -> Line:
    command, code, says = (part.strip() for part in text.split(" | "))
    every = [part.strip() for part in says.split(" ; ")]
    unsaid = [part[1:] for part in every if part.startswith("!")]
    said = [part for part in every if not part.startswith("!")]
    assert said, f"line {number} asks for no word"
    assert "" not in [*said, *unsaid], f"line {number} asks for an empty word"
    writes = command.startswith("+ ")
    words = command.removeprefix("+ ").split()
    return Line(number, writes, tuple(words), int(code), tuple(said), tuple(unsaid))


def _lines() -> list[Line]:
    texts = enumerate(INPUTS.read_text(encoding="utf-8").splitlines(), 1)
    return [_parsed(number, text) for number, text in texts if text and text[0] != "#"]


LINES = _lines()


def _make(root: Path, backend: str | None, **more: bool) -> None:
    config = SMALL.model_copy(update=more)
    with MessageStore.open(root, config, backend=backend) as store, any_topics(store):
        for number, (topic, queue_id) in enumerate(PUT):
            body = b"body %d" % number
            assert store.put_message(Message(topic, body, queue_id, {"KEYS": f"k{number}"})).ok


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all that the lines name: stores, what is none, settings."""
    made = tmp_path_factory.mktemp("inputs")
    _make(made / "files", "file")
    (made / "files" / "config").mkdir()
    for name, content in (("topics", TOPICS), ("consumerOffset", OFFSETS)):
        table = made / "files" / "config" / f"{name}.json"
        table.write_text(content)
        os.utime(table, (LONG_AGO, LONG_AGO))  # younger ones are waited for: a broker may write
    _make(made / "rocksdb", "rocksdb")
    _make(made / "both", None, rocksdb_cq_double_write_enable=True)
    shutil.copytree(made / "files", made / "damaged")
    with (made / "damaged" / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(DAMAGED_AT)
        log.write(b"\xff" * 60)
    (made / "empty").mkdir()
    (made / "afile").write_text("a shopping list\n")
    for name, settings in CONFS.items():
        (made / name).write_bytes(settings)
    return made


@pytest.fixture(scope="module")
def digests(made: Path) -> list[str]:
    """One digest: of the folder as the last line left it."""
    return [tree_digest(made)]


def _filled(word: str, made: Path) -> str:
    """Return a word with the paths of what it names: ``{files}/commitlog``."""
    return re.sub(r"\{(\w+)\}", lambda found: str(made / found[1]), word)


def typed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error of a command."""
    never_reported()
    out, err = io.StringIO(), io.StringIO()
    # ``main`` adds the verbs of upper layers, once in a process.
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
    monkeypatch.setattr(app, "registered_groups", [*app.registered_groups])
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "argv", ["cqstore", *words])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    often = gc.get_threshold()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
        code = 0
    except SystemExit as exc:
        code = int(exc.code or 0)
    finally:
        gc.set_threshold(*often)
    return code, out.getvalue(), err.getvalue()


@pytest.mark.xdist_group("inputs")
@pytest.mark.parametrize("line", LINES, ids=str)
def test_what_is_typed_is_answered(
    line: Line, made: Path, digests: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = made
    if line.writes:
        place = tmp_path / "copy"
        shutil.copytree(made, place)
    words = [_filled(word, place) for word in line.words]
    code, out, err = typed(words, monkeypatch)
    reported = " ".join(FRAMES.sub(" ", COLORS.sub("", out + err)).split())
    before, digests[0] = digests[0], tree_digest(made)
    assert digests[0] == before, "bytes have changed"
    assert "Traceback" not in reported, reported
    assert code == line.code, reported
    for part in line.said:
        assert _filled(part, place) in reported
    for part in line.unsaid:
        assert _filled(part, place) not in reported
    if code == EXIT_REFUSED:
        assert err, "a refusal is said on standard error"
        assert not out or "--repair" in words, "and only --repair lists before what it found"


def test_the_lines_are_many_of_every_verb_and_no_two_the_same() -> None:
    assert len(LINES) >= 200
    commands = sorted(line.words for line in LINES)
    assert not [one for one, next_ in pairwise(commands) if one == next_]
