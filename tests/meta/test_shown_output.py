"""What a page shows of a program or a command is what it prints."""

import json
import os
import re
import shutil
import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from cqstore import Message, MessageStore, StoreConfig
from tests.kit import commands
from tests.kit.golden import copy_store
from tests.kit.pages import PAGES, ROOT, blocks, is_printed
from tests.kit.shown import consoles, run_commands, run_here, run_programs
from tools.bench import demo
from tools.bench.sample_messages import put_messages

DOCS = ROOT / "docs"
CLEANING = DOCS / "api" / "cleaning.md"
SERVICES = DOCS / "broker-services.md"
GETTING_STARTED, MIGRATION, ANALYSIS, REPLICATION = (
    DOCS / f"{name}.md" for name in ("getting-started", "migration", "analysis", "replication")
)


@pytest.mark.disk  # a log file of a gigabyte
def test_getting_started(tmp_path: Path) -> None:
    run_programs(GETTING_STARTED, tmp_path)
    run_commands(consoles(GETTING_STARTED), partial(commands.run, cwd=tmp_path))


def test_broker_services(tmp_path: Path) -> None:
    run_programs(SERVICES, tmp_path)
    run_commands(consoles(SERVICES), partial(commands.run, cwd=tmp_path))


@pytest.mark.disk  # a log file of a gigabyte
def test_monitoring(tmp_path: Path) -> None:
    run_programs(DOCS / "monitoring.md", tmp_path)


def test_cleaning_of_topics(tmp_path: Path) -> None:
    run_programs(CLEANING, tmp_path)


@pytest.mark.disk  # a log file of a gigabyte
def test_readme(tmp_path: Path) -> None:
    run_programs(ROOT / "README.md", tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With fewer messages, so all numbers differ; words and lines are those of the README."""
    shown = _without_numbers(
        [text for kind, text in blocks(ROOT / "README.md") if kind == "text"][-1]
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(demo, "MESSAGES", 2_000)
    monkeypatch.setattr(demo, "TOPICS", 5)
    assert demo.main() == 0
    printed = _without_numbers(capsys.readouterr().out)
    first = printed.index(shown[0])
    assert printed[first : first + len(shown)] == shown


def _without_numbers(text: str) -> list[str]:
    """Return the lines without borders, numbers, digests and the names of folders."""
    plain = re.sub(r"[━┃┏┓┡┩╇┳│─└┴┘]", " ", re.sub(r"digest \w+", "digest", text))
    lines = [re.sub(r"[\d,.]*\d|[…/]\S*/store\b", "", line).split() for line in plain.splitlines()]
    return [" ".join(line) for line in lines if line]


@pytest.mark.slow
def test_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = Path("store")
    config = StoreConfig(mapped_file_size_commit_log=16 << 20)
    with MessageStore.open(root, config, backend="file") as store:
        put_messages(store, 20_000, 25, 8, repeats=4, limit=128)
    (root / "config").mkdir(exist_ok=True)
    offsets = {"offsetTable": {"demo_topic_00000@billing": {"0": 50}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    for path in (root / "config").iterdir():
        os.utime(path, (1000, 1000))  # a switch waits until the tables have not changed for a while
    run_commands(consoles(MIGRATION), run_here)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_analysis(golden_folder: Path, tmp_path: Path) -> None:
    copy_store(golden_folder / "special-default", tmp_path / "store")
    run_commands(consoles(ANALYSIS), partial(run_here, folder=tmp_path))


def test_replication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    former, new = Path("former"), Path("new")
    config = StoreConfig(mapped_file_size_commit_log=1 << 20)

    def put(root: Path, count: int, body: bytes) -> None:
        with MessageStore.open(root, config) as store:
            messages = [Message("orders", body, number % 4) for number in range(count)]
            assert all(result.ok for result in store.put_messages(messages))

    put(former, 80, b"order")
    shutil.copytree(former, new)
    (new / "lock").unlink()
    put(former, 3, b"former")
    put(new, 70, b"a new order")
    run_commands(consoles(REPLICATION), run_here, [1])


def test_every_page_that_shows_output_is_run() -> None:
    """But for what ``follow`` and ``feed`` print, which needs two machines (replication)."""
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    programs = {page for page in PAGES if ("python", "text") in _neighbours(page)}
    embedded = DOCS / "embedded-log.md"  # in tests/embedded
    monitoring, readme = DOCS / "monitoring.md", ROOT / "README.md"
    assert programs == {readme, GETTING_STARTED, monitoring, CLEANING, embedded, SERVICES}
    shown = {page for page in PAGES if consoles(page)}
    assert shown == {GETTING_STARTED, MIGRATION, ANALYSIS, REPLICATION, SERVICES}
    unfenced = re.compile(r"^ {4}\$ .*\n {4}(?!\$ )", re.MULTILINE)
    assert {page for page, text in texts.items() if unfenced.search(text)} == {REPLICATION}


def _neighbours(page: Path) -> set[tuple[str, str]]:
    return set(pairwise(kind for kind, _ in blocks(page)))


def test_an_ellipsis_stands_for_text_of_a_line_or_for_lines_and_nothing_else_does() -> None:
    assert is_printed("a … c\n…\nend\n", "a b c\n1\n2\nend\n")
    assert is_printed("a … c\n…\nend\n", "a  c  \nend\n")
    assert not is_printed("a … c\n", "a b\nc\n")
    assert not is_printed("a\n", "a\nb\n")
    assert not is_printed("a\nb\n", "a\n")
    assert not is_printed("a.c\n", "abc\n")
    assert not is_printed("", "a\n")
