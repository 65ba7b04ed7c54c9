"""docs/command-line.md, made from the commands: ``python -m tests.kit.command_page``."""

import inspect
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from cqstore.cli.lazy_verbs import DefaultGroup
from tests.kit.command_tree import Command, subcommands, verbs

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
MARK = "<!-- made from the commands -->\n"
_WIDTH = 110
_TAKEN = {int: "N", float: "X", Path: "PATH"}
_OF_ALL = {"help", "quiet"}
"""Options of every verb, which the head of the page names."""


def rendered(text: str) -> str:
    """Return ``text`` with all below the mark made again."""
    head, _, _ = text.partition(MARK)
    return head + MARK + "".join(_sections())


def _sections() -> Iterator[str]:
    for name, verb in sorted(verbs().items()):
        yield _section(f"cqstore {name}", verb, "##")
        for below, command in sorted(subcommands(verb).items()):
            yield _section(f"cqstore {name} {below}", command, "###")


def _section(name: str, command: Command, level: str) -> str:
    lines = [f"\n{level} {name}\n"]
    if not isinstance(command, TyperGroup):
        lines.append(f"    {' '.join([name, *_usage(command)])}\n")
    lines += [_wrapped(part) for part in _paragraphs(command.help or "")]
    if shown := (command.epilog or "").split("\n\n")[1:]:
        lines.append("\n".join(f"    {line}" for line in ["# Examples", *shown]) + "\n")
    if isinstance(command, DefaultGroup):
        lines.append(f"Without a verb: `{name} {command.default}`.\n")
    if options := [one for one in _options(command) if one.name not in _OF_ALL]:
        rows = [f"| `{_option(one)}` | {_cell(one)} |" for one in options]
        lines.append("\n".join(["| option | |", "| --- | --- |", *rows]) + "\n")
    return "\n".join(lines)


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n") if part.strip()]


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_on_hyphens=False, break_long_words=False) + "\n"


def _arguments(command: Command) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "argument"]


def _options(command: Command) -> list[Any]:
    options = [one for one in command.params if one.param_type_name == "option"]
    return [] if isinstance(command, TyperGroup) else options


def _usage(command: Command) -> Iterator[str]:
    for one in _arguments(command):
        name = (one.metavar or one.name.upper()) + ("…" if one.nargs == -1 else "")
        yield name if one.required else f"[{name}]"
    if _options(command):
        yield "[OPTIONS]"


def _option(one: Any) -> str:
    """Return an option as it is written, with what it takes."""
    spelt = " / ".join([*one.opts, *one.secondary_opts])
    if one.is_flag:
        return spelt
    taken = one.type_descriptor.annotation
    if one.metavar:
        return f"{spelt} {one.metavar}".replace("|", "\\|")
    if isinstance(taken, type) and issubclass(taken, Enum):
        return spelt + " " + "\\|".join(str(each.value) for each in taken)
    return f"{spelt} {_TAKEN.get(taken, 'TEXT')}"


def _cell(one: Any) -> str:
    text = " ".join((one.help or "").split()).replace("|", "\\|")
    default = getattr(one.default, "value", one.default)
    if one.required:
        return f"{text} Required."
    if one.is_flag or default in (None, "", (), []) or callable(default):
        return text
    return f"{text} Default: {default}."


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
