"""The verbs of ``cqstore`` and their options, to tell whether a document shows real ones."""

import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint
from itertools import pairwise

import typer
from typer.core import TyperCommand, TyperGroup

from cqstore.cli.app import COMMANDS_GROUP, app
from cqstore.cli.lazy_verbs import DefaultGroup, Verb
from tests.kit.pages import ROOT

Command = TyperCommand | TyperGroup
_OF_ALL = {"--help"}


@cache
def verbs() -> dict[str, Command]:
    """Return every verb, those of upper layers too."""
    return subcommands(made(app)) | {name: made(upper) for name, upper in upper_commands().items()}


def every_command() -> Iterator[tuple[str, Command]]:
    """Yield all that takes ``--help``, by the words before it."""
    yield "", made(app)
    for name, verb in verbs().items():
        yield name, verb
        for below, command in subcommands(verb).items():
            yield f"{name} {below}", command


def listed() -> Iterator[Verb]:
    """Yield every verb as it is listed, before it is imported."""
    for group in (app, *upper_commands().values()):
        command = typer.main.get_command(group)
        below = command.commands.values() if isinstance(command, TyperGroup) else [command]
        yield from (one for one in below if isinstance(one, Verb))


def upper_commands() -> dict[str, typer.Typer]:
    """Return the commands of the packages above the store, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    places = project["entry-points"][COMMANDS_GROUP]
    return {name: EntryPoint(name, place, COMMANDS_GROUP).load() for name, place in places.items()}


@cache
def made(typed: typer.Typer) -> Command:
    """Return the command that an application is, whole."""
    return _whole(typer.main.get_command(typed))


@cache
def _whole(command: object) -> Command:
    """Return a command with its options; the same one for each call, because it takes 5 ms."""
    found = command.load() if isinstance(command, Verb) else command
    assert isinstance(found, Command)
    return found


def subcommands(command: Command) -> dict[str, Command]:
    """Return the verbs of a group, none of a verb."""
    below = command.commands if isinstance(command, TyperGroup) else {}
    return {name: _whole(one) for name, one in below.items()}


def _options(command: Command) -> set[str]:
    if isinstance(command, DefaultGroup):
        return _options(subcommands(command)[command.default])
    return _OF_ALL | {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


@cache
def all_options() -> frozenset[str]:
    """Return the options of all verbs."""
    commands = [made(app), *verbs().values()]
    commands += [below for command in verbs().values() for below in subcommands(command).values()]
    return frozenset(option for command in commands for option in _options(command))


def strange_words(line: str) -> list[str]:
    """Return what in a line such as ``cqstore get DIR --key K`` is no verb or option.

    A verb in capitals stands for any; of ``migrate plan | run`` each is one.
    """
    strange: list[str] = []
    known, options, below = verbs(), _options(made(app)), True
    for before, word in pairwise(shlex.split(line, comments=True)):
        if word.startswith("--"):
            strange += [] if word.split("=")[0] in options else [word]
        elif word in known and (below or before == "|"):  # else it is a value: --backend rocksdb
            options, below = _options(known[word]), bool(subcommands(known[word]))
            known = subcommands(known[word]) or known
        elif below and not word.isupper():
            strange.append(word)
        else:
            below = False
    return strange
