"""Verbs that are imported when they are called: who lists them needs no more than a sentence."""

from contextvars import ContextVar
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

VERBOSE: ContextVar[bool] = ContextVar("verbose", default=False)
"""Whether ``--verbose`` was given before the verb."""


class Verb(TyperCommand):
    """A verb that is listed: it has a name and a sentence, and knows where the whole one is."""

    place = ""
    """Of its function, ``module:function``."""

    def whole(self) -> Any:
        """Import the function; return its command, with options and arguments."""
        module, _, function = self.place.partition(":")
        alone = typer.Typer(add_completion=False)
        alone.command(self.name)(getattr(import_module(module), function))
        return typer.main.get_command(alone)

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Begin a call, or the help or completion of one: all of these go to the whole verb."""
        return self.whole().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Call the whole verb, whose context ``ctx`` is."""
        return ctx.command.invoke(ctx)


class DefaultGroup(TyperGroup):
    """A group with a verb that is called where none is named: ``meta DIR`` is ``meta show DIR``.

    A folder that is called like a verb is written with a path (``./convert``).
    """

    default = "show"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default verb before arguments that name none."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def add_verb(app: typer.Typer, name: str, where: str, sentence: str) -> None:
    """Add the verb whose function is at ``where``, ``module:function``.

    ``sentence`` is the first paragraph of the function's docstring, which a list of verbs shows.
    """

    class Here(Verb):
        place = where

    app.command(name, cls=Here, help=sentence)(_not_here)


def _not_here() -> None:
    """Stand for a function that is not imported yet."""
