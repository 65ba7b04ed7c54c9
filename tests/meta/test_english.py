"""The rules of ``tests/kit/english.py`` find planted faults, and leave plain English alone."""

import re
import subprocess
from pathlib import Path

import pytest
import typer

from tests.kit import english
from tests.kit.command_tree import every_command, made
from tests.kit.message_page import FINDINGS, LOGGED, NOTES, messages

LONG = "word " * english.MAX_WORDS + "more."
SHORT = "A word " + "word " * (english.MAX_WORDS - 3) + "here."


def page(folder: Path, text: str) -> list[str]:
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    return list(english.documents([path], folder))


@pytest.mark.parametrize(
    "text",
    [
        LONG,
        f"- {LONG}\n- Short.",
        f"1. Short.\n2. {LONG}",
        LONG.replace("word word", "word\nword", 1),
        f"Short. ({LONG}) Short.",
        "`a` " * english.MAX_WORDS + "`b`.",
        f"# Title\n{LONG}\n| a | b |\n| --- | --- |\n",
    ],
)
def test_a_long_sentence_of_a_page_is_found(text: str, tmp_path: Path) -> None:
    (found,) = page(tmp_path, text)
    assert f": {english.MAX_WORDS + 1} words, at most" in found


@pytest.mark.parametrize(
    "text",
    [
        SHORT,
        f"{SHORT} {SHORT}",
        f"**{SHORT}** {SHORT}",
        f"{SHORT[:-1]}: *{SHORT}*",
        f"- {SHORT[:-1]}\n- {SHORT}",
        f"{SHORT[:-1]}\n\n{SHORT}",
        f"```text\n{LONG}\n```",
        f"Text:\n\n    {LONG}\n",
        f"| a |\n| --- |\n| {LONG} |\n",
        f"`{LONG}` is one word.",
        f"`{LONG.replace('word', 'Word.')}` is one word.",
        f"<!-- {LONG} -->",
        f"<!-- made from the commands -->\n{LONG}",
    ],
)
def test_sentences_that_are_short_enough_and_code_are_left_alone(text: str, tmp_path: Path) -> None:
    assert page(tmp_path, text) == []


def test_a_finding_names_page_and_line(tmp_path: Path) -> None:
    text = f"# Title\n\nShort.\n\n<!-- a\nb -->\n{LONG}\n\n| a |\n| --- |\n| the file is none |\n"
    places = [each.split(": ")[0] for each in page(tmp_path, text)]
    assert places == ["page.md:7", "page.md:11"]


def test_pages_about_helpers_of_tests_are_left_alone(tmp_path: Path) -> None:
    for folder in ("docs", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "page.md").write_text(LONG, encoding="utf-8")
    found = list(english.documents(sorted(tmp_path.rglob("*.md")), tmp_path))
    assert [each.split(": ")[0] for each in found] == ["docs/page.md:1"]


FAULTS = (
    "this is none", "files are none", "'x' is no topic", "which are no UTF-8", "the run goes on",
    "run again to go on", "a record behind the end", "with records behind it",
    "There cannot be listened", "the record is passed over", "to pass over the record",
    "Likewise,", "It is put under a key", "what is at hand", "as far as it goes",
    "the error tells", "it is told",
    "the store hears of it", "preflight knows it", "it lies there", "the loop stands still",
    "the record comes again", "So does the other",
)  # fmt: skip
PLAIN = (
    "there is no topic", "there are no topics", "it is no longer open", "it has no topics",
    "with --pass-over N", "a pass over all queues", "`goes on` is code",
    "… stands for names", "it comes from the broker", "the store's behaviour", "behind a proxy",
)  # fmt: skip


@pytest.mark.parametrize("text", FAULTS)
def test_a_phrase_is_found_in_pages_help_and_messages(text: str, tmp_path: Path) -> None:
    assert len(page(tmp_path, f"Now {text} here.")) == 1
    assert len(page(tmp_path, f"| a |\n| --- |\n| {text} |\n")) == 1
    assert len(page(tmp_path, f"Now {text.replace(' ', chr(10), 1)} here.")) == 1
    assert len(list(english.messages({"StoreError": {f"{text}: in …"}}))) == 1
    app = typer.Typer()

    @app.command(help=f"Now {text}.")
    def planted(*, option: bool = typer.Option(default=False, help=f"Now {text}.")) -> None: ...

    assert len(list(english.helps([("planted", made(app))]))) == 2


@pytest.mark.parametrize("text", PLAIN)
def test_plain_english_is_left_alone(text: str, tmp_path: Path) -> None:
    assert page(tmp_path, f"Now {text} here.") == []


def test_each_phrase_has_a_planted_fault() -> None:
    text = "; ".join(FAULTS)
    found = {phrase for phrase in english.PHRASES if re.search(rf"\b(?:{phrase})\b", text, re.I)}
    assert found == english.PHRASES.keys()


@pytest.mark.parametrize(
    "text", ["Of each workload.", "As before.", "limit per round.", "Limit", ""]
)
def test_a_fragment_as_help_is_found(text: str) -> None:
    assert len(list(english.fragment(text))) == 1


def test_a_whole_help_is_no_fragment() -> None:
    assert list(english.fragment("Maximum number of rounds per workload.")) == []


@pytest.mark.xdist_group("trees")
def test_all_commands_and_all_kinds_of_messages_are_read() -> None:
    assert {"", "put", "migrate plan"} <= {name for name, _ in every_command()}
    found = messages()
    assert {FINDINGS, NOTES, LOGGED, "CorruptionError"} <= found.keys()
    assert sum(map(len, found.values())) > 500


def test_a_word_without_its_thing_is_found_in_a_source(tmp_path: Path) -> None:
    for name in ("store/a.py", "cqstore/ab/b.py", "docs/ab.md", "docs/c.md", "other/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one\nWhoever has a twin\n", encoding="utf-8")
    found = sorted(each.rsplit(":", 1)[0] for each in english.sources(tmp_path))
    assert found == [
        "cqstore/ab/b.py:2: 'whoever'",
        "docs/ab.md:2: 'whoever'",
        "docs/c.md:2: 'twin'",
        "docs/c.md:2: 'whoever'",
        "store/a.py:2: 'twin'",
        "store/a.py:2: 'whoever'",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "store: fixes a leak", "store: fixed a leak", "store: fixing a leak", "store: a leak",
        "store: what a leak is", "Fix a leak", "fix a leak", "store: fix a leak.",
        "store fix: a leak", "store: ", "store: fix " + "x" * 62,
    ],
)  # fmt: skip
def test_a_subject_that_is_no_imperative_is_found(text: str) -> None:
    assert len(list(english.subject(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "store: fix a leak", "cq_file, cli: pass the size on", "bench-peer: embed the table",
        "docs: proceed", "tests: bring back a test of 1.2", "store: fix " + "x" * 61,
    ],
)  # fmt: skip
def test_an_imperative_is_left_alone(text: str) -> None:
    assert list(english.subject(text)) == []


def git(folder: Path, *arguments: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *names, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_subjects_after_the_first_commit_are_read_without_merges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "Older")
    first = git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "checkout", "-q", "-b", "side")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "store: adds a thing", "-m", "Why.")
    git(tmp_path, "checkout", "-q", "main")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "store: add another")
    git(tmp_path, "merge", "-q", "--no-ff", "-m", "Merge it", "side")
    (found,) = english.commits(tmp_path, first)
    assert found.endswith(": 'adds' is not an imperative: store: adds a thing")
    assert capsys.readouterr().err == ""


def test_a_tree_without_history_says_that_subjects_are_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "Alone")
    assert list(english.commits(tmp_path)) == []
    assert capsys.readouterr().err.startswith("commit subjects are not checked: fatal: ")
