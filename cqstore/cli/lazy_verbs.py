"""Verbs that are imported only when they are called; a list of verbs reads their docstrings."""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from cqstore.cli.help_format import PlainHelp, epilog, heading_of, in_order, paragraphs
from cqstore.cli.importing import ended_by_interrupt
from cqstore.cli.progress import QUIET, progress
from cqstore.store.errors import RefusedStoreError, StoreConfigError
from cqstore.store.path_kind import exists
from cqstore.store.paths import named_path

VERBOSE: ContextVar[bool] = ContextVar("verbose", default=False)
"""Whether ``--verbose`` was given before the verb."""
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]


class WholeVerb(PlainHelp, TyperCommand):
    """A verb with its function, options and arguments."""


class Verb(TyperCommand):
    """Placeholder for a command in a list: name, and location of its function."""

    place = ""
    """Location of the verb's function, ``module:function``."""
    shows_progress = True
    """False for a command that waits for input or for other processes."""

    @property
    def help(self) -> str:
        """Return the first paragraph of the function's docstring, from its source."""
        module, _, name = self.place.partition(":")
        source: str = cast("Any", find_spec(module)).loader.get_source(module)
        docstring = source.partition(f"\ndef {name}(")[2].split('"""', 2)[1]
        return paragraphs(docstring).partition("\n\n")[0]

    @help.setter  # noqa: A003 - click's name
    def help(self, _text: str | None) -> None:
        """Ignore the docstring of the placeholder's function, which typer passes."""

    def load(self) -> Any:
        """Import the function and return its command, with options and arguments."""
        module, _, name = self.place.partition(":")
        with ended_by_interrupt():
            function = getattr(import_module(module), name)
        alone = typer.Typer(add_completion=False)
        wrapped = _with_progress(function, (self.name or "") if self.shows_progress else "")
        text = function.__doc__ or ""
        alone.command(self.name, cls=WholeVerb, help=paragraphs(text), epilog=epilog(text))(wrapped)
        made = typer.main.get_command(alone)
        for parameter in made.params:
            _refuse_empty_path(parameter)
        return made

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Create the context of a call, help or completion of the imported verb."""
        return self.load().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Call the imported verb; ``ctx`` is its context."""
        return ctx.command.invoke(ctx)


def _refuse_empty_path(parameter: Any) -> None:
    """Make a path parameter refuse an empty path.

    ``Path("")`` means the current folder, but an empty path is usually an unset shell variable.
    """
    taken = parameter.type_descriptor.annotation
    if Path not in {taken, *get_args(taken)}:
        return
    process = parameter.process_value

    def process_value(ctx: Any, value: Any) -> Any:
        for each in [value] if isinstance(value, str | Path) else value or ():
            try:
                named_path(each)
            except RefusedStoreError as exc:
                raise typer.BadParameter(exc.reason, ctx=ctx, param=parameter) from exc
        return process(ctx, value)

    parameter.process_value = process_value


def _with_progress(function: Callable[..., Any], label: str) -> Callable[..., Any]:
    """Return a command's function that also takes ``--quiet`` and shows its progress.

    Its output paths are guarded while it runs, see ``OutputPath``.
    """
    from cqstore.cli.path_marks import guarded, path_marks  # noqa: PLC0415 - a list needs none

    marks = path_marks(function)

    @wraps(function)
    def wrapped(*args: Any, quiet: bool = False, **options: Any) -> Any:
        before = QUIET.set(quiet or QUIET.get())
        try:
            with guarded(marks, options), progress(label) if label else nullcontext():
                return function(*args, **options)
        finally:
            QUIET.reset(before)

    signature, made = inspect.signature(function), cast("Any", wrapped)
    quiet = inspect.Parameter(
        "quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet
    )
    made.__signature__ = signature.replace(parameters=[*signature.parameters.values(), quiet])
    made.__annotations__ = {**function.__annotations__, "quiet": Quiet}
    del made.__wrapped__
    return wrapped


class DefaultGroup(PlainHelp, TyperGroup):
    """A group with a default verb: ``meta DIR`` means ``meta show DIR``.

    A folder with the name of a verb must be written as a path (``./convert``).
    """

    default = "show"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default verb if the first argument is not a verb, nor a misspelt one."""
        named = {*self.commands, *ctx.help_option_names}
        if args and args[0] not in named and not self._is_misspelt(args[0]):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _is_misspelt(self, word: str) -> bool:
        """Return whether a word is similar to a verb and is not an existing folder."""
        from difflib import get_close_matches  # noqa: PLC0415 - rarely needed

        return bool(get_close_matches(word, self.commands)) and not exists(Path(word))


class VerbGroup(PlainHelp, TyperGroup):
    """A group without a default verb; a folder given in place of a verb is reported."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse a folder or file where a verb is expected.

        Raises:
            StoreConfigError: the argument names an existing file or folder.
        """
        if args and args[0] and args[0] not in self.commands and exists(Path(args[0])):
            verbs = ", ".join(self.commands)
            raise StoreConfigError(f"{args[0]} is not a command: put one of {verbs} before it")
        return super().parse_args(ctx, args)


class RootGroup(PlainHelp, TyperGroup):
    """The verbs of ``cqstore`` itself; a folder given in place of a verb is reported."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs in the order of the headings of ``cqstore --help``."""
        return in_order(super().list_commands(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command with its heading, or ``None`` if it does not exist."""
        if command := cast("Any", super().get_command(ctx, cmd_name)):
            command.rich_help_panel = heading_of(cmd_name)
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse a folder or file where a verb is expected.

        Raises:
            StoreConfigError: the first argument names an existing file or folder.
        """
        first = next((word for word in args if not word.startswith("-")), "")
        if first and first not in self.commands and exists(Path(first)):
            raise StoreConfigError(
                f"{first} is not a command; did you mean cqstore info {first}? (cqstore --help"
                " lists all commands)"
            )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Call the command; report an invalid option value like an invalid value in a file.

        Raises:
            typer.BadParameter: an option has an invalid value.
        """
        try:
            return super().invoke(ctx)
        except typer.BadParameter as exc:
            from pydantic import ValidationError  # noqa: PLC0415 - typer has imported it by now

            from cqstore.store.settings.validation import first_fault  # noqa: PLC0415

            if isinstance(cause := exc.__cause__, ValidationError):
                exc.message = first_fault(cause)
            raise


def add_verb(app: typer.Typer, name: str, where: str, *, has_progress: bool = True) -> None:
    """Add the verb whose function is at ``where``, ``module:function``.

    ``has_progress``: see ``Verb.shows_progress``.
    """

    class Here(Verb):
        place = where
        shows_progress = has_progress

    app.command(name, cls=Here)(_not_here)


def _not_here() -> None:
    """Placeholder for a function that is not imported yet."""
