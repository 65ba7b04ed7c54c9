"""What ``--help`` prints: whole words on a terminal of eighty columns, and no marks of a markup."""

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest
from typer.core import TyperGroup

from cqstore.cli.help_format import VERBS_BY_HEADING, epilog, paragraphs
from tests.kit.command_tree import Command, every_command, verbs

WIDTH = 80
COLORS, FRAMES = re.compile(r"\x1b\[[\d;]*m"), re.compile("[\u2500-\u257f]")
MARKS = re.compile(r"``|:\w+:`|\[\[|\.\. \w+::|\*\*|……")
"""Of reStructuredText and Markdown, and what has been put around a name twice."""
BETWEEN = re.compile(r"[\s<>|]+")


def said(command: Command) -> Iterator[str]:
    """Yield all that the help of a command is to say: its text, and that of each option."""
    yield command.help or ""
    for one in command.params:
        yield " ".join([*one.opts, *one.secondary_opts] if one.param_type_name == "option" else [])
        yield getattr(one, "help", None) or ""
        yield one.metavar or " ".join(choices(one))
    if isinstance(command, TyperGroup):
        yield " ".join(command.commands)


def choices(one: Any) -> list[str]:
    """Return what an option takes, where that is one of a few."""
    taken = one.type_descriptor.annotation
    is_enum = isinstance(taken, type) and issubclass(taken, Enum)
    return [str(each.value) for each in taken] if is_enum else []


@pytest.mark.slow
def test_each_help_has_whole_words_within_eighty_columns_and_no_marks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    reported = 0
    for name, command in every_command():
        command.main(["--help"], prog_name=f"cqstore {name}".rstrip(), standalone_mode=False)
        text = FRAMES.sub(" ", COLORS.sub("", capsys.readouterr().out))
        assert max(len(line.rstrip()) for line in text.splitlines()) <= WIDTH, name
        assert not MARKS.findall(text), name
        printed = {*BETWEEN.split(text)}
        wanted = {word for part in said(command) for word in BETWEEN.split(part)}
        assert wanted <= printed, (name, wanted - printed)
        folded = [part for part in (command.help or "").split("\n\n") if "\n" in part.strip()]
        assert not folded, f"{name}: a terminal of any other width breaks these lines once more"
        reported += 1
    assert reported > len(verbs())


def test_each_verb_is_below_one_heading() -> None:
    listed = [verb for each in VERBS_BY_HEADING.values() for verb in each]
    assert sorted(listed) == sorted(verbs())


def test_examples_of_a_docstring_are_shown_one_per_line() -> None:
    text = """Do it.

    More of
    it.

    Examples:
        cqstore do DIR
        cqstore do DIR --yes
    """
    assert paragraphs(text) == "Do it.\n\nMore of it."
    assert epilog(text) == "Examples:\n\ncqstore do DIR\n\ncqstore do DIR --yes"
    assert epilog("Do it.") is None


def test_each_verb_ends_with_two_examples_or_more() -> None:
    lacking: list[str] = []
    for name, command in every_command():
        shown = (command.epilog or "").split("\n\n")[1:]
        if isinstance(command, TyperGroup):
            continue
        if len(shown) < 2 or not all(line.startswith(f"cqstore {name} ") for line in shown):
            lacking.append(f"{name}: {shown}")
    assert lacking == []
