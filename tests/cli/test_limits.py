"""Every answer with a limit reports that there is more: in a note, and in the last row of JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cqstore.cli.limited import BoundedAnswer
from cqstore.cli.output import RowFormat, output
from cqstore.store.errors import StoreIOError
from cqstore.store.record.message import HALF_TOPIC, SCHEDULE_TOPIC, Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.command_tree import Command, subcommands, verbs
from tests.kit.commands import cqstore, run
from tests.kit.operating import SMALL, write_config, write_offsets


class Bounded(NamedTuple):
    """A verb with the option that limits its rows, and how many rows there are without it."""

    words: list[str]
    option: str
    rows: int
    subject: str = ""
    """What the limit counts, if that is not the rows of the answer."""


BOUNDED = [
    Bounded(["get", "DIR", "--topic", "t"], "--count", 3),
    Bounded(["get", "DIR", "--topic", "t", "--key", "k"], "--count", 3),
    Bounded(["get", "DIR", "--topic", "t", "--begin", "0"], "--count", 3),
    Bounded(["query", "DIR", "--topic", "t", "--key", "k"], "--max", 3),
    Bounded(["dump", "DIR", "--topic", "t"], "--count", 3),
    Bounded(["topics", "DIR", "--prefix", "real"], "--limit", 3),
    Bounded(["topics", "DIR", "--idle", "0", "--prefix", "real"], "--limit", 3),
    Bounded(["dlq", "DIR"], "--limit", 3),
    Bounded(["dlq", "DIR", "g0"], "--limit", 3),
    Bounded(["groups", "show", "DIR"], "--limit", 3),
    Bounded(["groups", "show", "DIR", "--by", "topic"], "--limit", 4),
    Bounded(["usage", "DIR", "--prefix", "real"], "--limit", 3),
    Bounded(["pending", "DIR", "--of", "half"], "--limit", 3),
    Bounded(["pending", "DIR", "--list", "--of", "delay"], "--limit", 3),
    Bounded(["rocksdb", "stats", "DIR"], "--topics", 7, "topics"),
    Bounded(["ab", "policy", "DIR"], "--hottest", 7, "topics"),
]
"""All but ``sql``, which needs Java: ``tests/analysis/test_sql.py`` holds the same of it."""
COMPLETE = {
    ("migrate plan", "--segment-units"),
    ("serve", "--max-new-topics"),
    ("sql", "--limit"),
    ("tail", "--count"),  # the newest are what is asked for
    ("top", "--limit"),  # all others share a row
}  # fmt: skip
"""Of no limit of rows that are left out, or held elsewhere."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three of everything that has a limit."""
    root = tmp_path_factory.mktemp("bounded") / "store"
    with MessageStore.open(root, SMALL, backend="rocksdb") as store:
        for number in range(3):
            dead = {"RETRY_TOPIC": f"real{number}", "ORIGIN_MESSAGE_ID": "A", "DELAY": "0"}
            delayed = {"DELAY": "1", "REAL_TOPIC": "t"}
            for message in (
                Message("t", b"x", 0, {"KEYS": "k"}),
                Message(f"real{number}", b"x"),
                Message("%DLQ%g0", b"x", 0, dead),
                Message(SCHEDULE_TOPIC, b"x", 0, delayed),
                Message(HALF_TOPIC, b"x", number, {"REAL_TOPIC": "t"}),
            ):
                assert store.put_message(message).ok
    groups = {f"g{number}": {"groupName": f"g{number}"} for number in range(3)}
    write_config(root, "subscriptionGroup.json", {"subscriptionGroupTable": groups})
    write_offsets(root, {f"real{number}@g{number}": {0: 0} for number in range(3)})
    return root


def requested(
    bounded: Bounded, root: Path, limit: int, kind: str
) -> tuple[list[dict[str, object]], str]:
    """Return the rows and the notes of an answer."""
    words = [str(root) if word == "DIR" else word for word in bounded.words]
    done = cqstore(*words, bounded.option, limit, "--output", kind)
    if kind == "json":
        return json.loads(done.stdout), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.parametrize("kind", ["json", "jsonl"])
@pytest.mark.parametrize("bounded", BOUNDED, ids=lambda each: " ".join(each.words))
def test_an_answer_that_is_cut_says_so(root: Path, bounded: Bounded, kind: str) -> None:
    whole, notes = requested(bounded, root, bounded.rows, kind)
    assert bounded.subject or len(whole) == bounded.rows
    assert not [row for row in whole if "has_more" in row]
    assert f"({bounded.option}" not in notes
    cut, notes = requested(bounded, root, bounded.rows - 1, kind)
    assert len(cut) == len(whole) - 1
    assert [at for at, row in enumerate(cut) if "has_more" in row] == [len(cut) - 1]
    assert cut[-1]["has_more"] is True
    assert (
        f"cqstore: only the {'newest' if 'newest' in notes else 'first'} {bounded.rows - 1} "
        in notes
    )
    assert f"({bounded.option}" in notes


def test_other_forms_have_the_note_alone(root: Path) -> None:
    for kind in ("csv", "table"):
        done = run(["usage", root, "--limit", 1, "--output", kind])
        assert "has_more" not in done.stdout
        assert "only the first 1 rows are shown: there are more (--limit)" in done.stderr
    done = run(["get", root, "--topic", "t", "--count", 1, "--format", "%t %o"])
    assert done.stdout == "t 0\n"
    assert "only the first 1 messages are shown" in done.stderr


def limits(command: Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield each option of a verb with its help."""
    for option in command.params:
        yield path, option.opts[0], getattr(option, "help", "") or ""
    for name, below in subcommands(command).items():
        yield from limits(below, (*path, name))


def test_every_option_that_limits_rows_is_held_here() -> None:
    found = {
        (path[0] if path[0] in {"top", "sql"} else " ".join(path), option)
        for name, command in verbs().items()
        for path, option, text in limits(command, (name,))
        if text.startswith(("Maximum number of ", "Number of "))
        and any(what in text for what in ("rows", "messages", "units", "topics"))
    }
    held = {
        (" ".join(word for word in each.words[: each.words.index("DIR")]), each.option)
        for each in BOUNDED
    }
    assert found - COMPLETE == held


def test_what_was_cut_is_imported_and_put_without_the_mark(root: Path, tmp_path: Path) -> None:
    cut = run(["get", root, "--topic", "t", "--count", 2]).stdout
    assert json.loads(cut.splitlines()[-1])["has_more"] is True
    path = tmp_path / "cut.jsonl"
    path.write_text(cut)
    again, conf = tmp_path / "again", tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=65536\nmaxIndexNum=20\nmaxHashSlotNum=5\n")
    assert run(["import", again, path, "--new", "--config", conf]).returncode == 0
    found = [json.loads(line) for line in run(["get", again, "--topic", "t"]).stdout.splitlines()]
    assert [(row["queueOffset"], row["body"]) for row in found] == [(0, "x"), (1, "x")]
    assert not [row for row in found if "has_more" in row]


def test_a_row_is_held_back_only_until_the_next_one_or_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bounded = BoundedAnswer()

    def failing() -> Iterator[dict[str, object]]:
        yield {"a": 1}
        yield {"a": 2}
        assert capsys.readouterr().out == '{"a":1}\n'
        raise StoreIOError("it broke")

    with pytest.raises(StoreIOError, match="it broke"):
        output(RowFormat.JSONL).rows(failing(), bounded.has_more)
    assert capsys.readouterr().out == '{"a":2}\n'


def test_a_column_of_a_query_of_that_name_keeps_its_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bounded = BoundedAnswer()
    rows = bounded.limited([{"has_more": 7}, {"has_more": 8}], 1, "rows", "--limit")
    output(RowFormat.JSON).rows(rows, bounded.has_more)
    assert json.loads(capsys.readouterr().out) == [{"has_more": 7}]
