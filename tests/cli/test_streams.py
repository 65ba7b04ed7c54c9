"""Output that cannot be written, and streams that are closed: a sentence and 2; a pipe: 141."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.commands import COMMAND, cqstore, run
from tests.kit.tree import unchanged

SMALL = StoreConfig(mapped_file_size_commit_log=1 << 20)
FULL = Path("/dev/full")
COUNT = 1000
NAME = "caf\u00e9-\u6d88\u606f"
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="Linux has /dev/full")

NO_SPACE = (
    "cqstore: cannot write to standard output: No space left on device; the output is truncated\n"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    with MessageStore.open(root, SMALL, backend="file") as store:
        for _ in range(COUNT):
            message = Message("t", b"x" * 50, 0, {"KEYS": f"k {NAME}"})
            assert store.put_message(message).ok
    return root


def shell(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {text}"], capture_output=True, text=True, check=False,
        env=os.environ | {"C": COMMAND[0]} | environment,
    )  # fmt: skip


VERBS = [
    ["info"], ["topics"], ["mode"], ["clean"], ["top", "--once"], ["get", "--topic", "t"],
    ["get", "--topic", "t", "--count", 2000], ["dump", "--messages"], ["dump", "--queues"],
    ["dump", "--topic", "t"], ["dump", "--commitlog-offset", 0], ["usage"], ["topics", "--times"],
    ["query", "--topic", "t", "--key", "k"], ["offset", "--topic", "t", "--time", 0],
    ["tail", "t"],
]  # fmt: skip
FORMS = [*((words, "table") for words in VERBS), *((VERBS[7], form) for form in ("json", "jsonl"))]


@pytest.mark.parametrize(("words", "form"), FORMS, ids=lambda each: "".join(map(str, each)))
def test_a_full_device_is_one_sentence(root: Path, words: list[object], form: str) -> None:
    with unchanged(root):
        done = run([words[0], root, *words[1:], "--output", form], out=FULL)
        assert done.returncode == 2, done.stderr
        assert done.stderr.endswith(NO_SPACE)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["get", "--help"], ["meta", "--help"]]
)
def test_help_that_cannot_be_written_is_one_sentence(words: list[object]) -> None:
    done = run(words, out=FULL)
    assert done.returncode == 2
    assert done.stderr == NO_SPACE


@pytest.mark.parametrize("count", [1, 300, 2000])
def test_a_put_whose_places_cannot_be_printed_says_what_was_put(tmp_path: Path, count: int) -> None:
    root = tmp_path / "store"
    MessageStore.open(root, SMALL, backend="file").close()
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=1048576\n")
    feed = "".join(json.dumps({"topic": "t", "flag": number}) + "\n" for number in range(count))
    done = run(["put", root, "--config", conf], feed, out=FULL)
    assert done.returncode == 2
    with MessageStore.open(root, SMALL, backend="file") as store:
        put = store.max_offset("t", 0)
    assert 0 < put <= count
    assert f"{put} messages were appended; continue with --continue-from {put + 1}" in done.stderr
    cqstore("put", root, "--config", conf, "--continue-from", put + 1, feed=feed)
    with MessageStore.open(root, SMALL, backend="file") as store:
        assert store.max_offset("t", 0) == count


def test_a_closed_output_is_one_sentence_before_anything_is_opened(root: Path) -> None:
    with unchanged(root):
        for words in ("info", "recover", "put --topic t"):
            verb, _, more = words.partition(" ")
            done = shell(f"$C {verb} {root} {more} >&-")
            assert (done.returncode, done.stderr) == (2, "cqstore: standard output is closed\n")


def test_no_file_of_the_store_gets_the_number_of_a_closed_stream(root: Path) -> None:
    done = shell(f"$C get {root} --topic t --count 2 <&- 2>&-")
    assert (done.returncode, done.stdout.count("\n")) == (0, 2)
    done = shell(f"$C export {root} --topic t 2>&-")
    assert (done.returncode, "cqstore:" in done.stdout) == (0, False), "notes are no rows"
    done = shell(f"$C put {root} <&-")
    assert (done.returncode, done.stderr) == (2, "cqstore: standard input is closed\n")
    done = shell(f"$C topics {root} --delete-from - <&-")
    assert (done.returncode, done.stderr) == (2, "cqstore: standard input is closed\n")


def test_notes_that_cannot_be_written_change_no_exit_code(root: Path) -> None:
    assert shell(f"$C check {root} 2>/dev/full").returncode == 0
    assert shell(f"$C info {root.parent}/none 2>/dev/full").returncode == 2


@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
def test_text_that_the_encoding_does_not_have_is_one_sentence(root: Path, form: str) -> None:
    done = shell(f"$C get {root} --topic t --count 2 --output {form}", PYTHONIOENCODING="latin-1")
    assert done.returncode == 2
    said = "cannot write \\u6d88 to standard output: its encoding is latin-1"
    assert said in done.stderr.replace("iso8859-1", "latin-1")
    assert "Traceback" not in done.stderr
    assert "PYTHONIOENCODING=utf-8" in done.stderr


def test_the_help_needs_no_more_than_ascii() -> None:
    for encoding in ("latin-1", "ascii"):
        done = shell("$C --help && $C get --help", PYTHONIOENCODING=encoding)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "words", ["dump {} --quiet --messages", "get {} --quiet --topic t --count 1000"]
)
@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
def test_a_reader_that_leaves_ends_it_as_sigpipe_does(root: Path, words: str, form: str) -> None:
    done = shell(f"$C {words.format(root)} --output {form} | head -1 >/dev/null; echo $PIPESTATUS")
    assert (done.stdout, done.stderr) == ("141\n", "")
