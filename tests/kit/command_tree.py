"""The verbs of ``cqstore`` and their options, to tell whether a document shows real ones."""

import shlex
import tomllib
from functools import cache
from importlib import import_module

import typer
from typer.core import TyperCommand, TyperGroup

from store.cli.app import COMMANDS_GROUP, app
from tests.kit.pages import ROOT

Command = TyperCommand | TyperGroup
_OF_ALL = {"--help"}


@cache
def verbs() -> dict[str, Command]:
    """Return every verb, those of upper layers too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = _below(_made(app))
    for name, place in project["entry-points"][COMMANDS_GROUP].items():
        module, attribute = place.split(":")
        found[name] = _made(getattr(import_module(module), attribute))
    return found


def _made(typed: typer.Typer) -> Command:
    command = typer.main.get_command(typed)
    assert isinstance(command, Command)
    return command


def _below(command: Command) -> dict[str, Command]:
    below = command.commands if isinstance(command, TyperGroup) else {}
    return {name: one for name, one in below.items() if isinstance(one, Command)}


def _options(command: Command) -> set[str]:
    return _OF_ALL | {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def all_options() -> set[str]:
    """Return the options of all verbs."""
    commands = [_made(app), *verbs().values()]
    commands += [below for command in verbs().values() for below in _below(command).values()]
    return {option for command in commands for option in _options(command)}


def strange_words(line: str) -> list[str]:
    """Return what in a line such as ``cqstore get DIR --key K`` is no verb or option.

    A verb in capitals stands for any; of ``migrate plan | run`` each is one.
    """
    strange: list[str] = []
    known, options, below = verbs(), _options(_made(app)), True
    for word in shlex.split(line, comments=True)[1:]:
        if word.startswith("--"):
            strange += [] if word.split("=")[0] in options else [word]
        elif word in known:
            options, below = _options(known[word]), bool(_below(known[word]))
            known = _below(known[word]) or known
        elif below and not word.isupper():
            strange.append(word)
        else:
            below = False
    return strange
