"""The command-line application: its verbs, the verbs of upper layers, and error handling.

Exit codes: 0 success; 1 damage or a difference was found; 2 wrong use, refused, or the output could
not be written; 141 the reader of the output closed it.
"""

import atexit
import gc
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from typer.models import CommandInfo

from cqstore.cli.commands.completion import COMPLETE, make_ready
from cqstore.cli.importing import ended_by_interrupt
from cqstore.cli.lazy_verbs import VERBOSE, Quiet, RootGroup, add_verb
from cqstore.cli.progress import QUIET
from cqstore.cli.streams import OutputError, ReaderGoneError, guard_streams
from cqstore.store.entry_points import entries
from cqstore.store.errors import CorruptionError, StoreConfigError, StoreError, StoreIOError

COMMANDS_GROUP = "cqstore.commands"
EXIT_DAMAGE = 1
EXIT_REFUSED = 2
_OBJECTS_A_COLLECTION = 100_000
"""New objects between two garbage collections. A command that lists a million queues creates
millions of long-lived objects; with Python's 700, they would be scanned again and again."""
_SURROGATES = "surrogates not allowed"
"""Part of the error of Python and pydantic for text that represents non-UTF-8 bytes."""
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""Set to 1: NumPy starts threads for matrix products, which no verb uses; they cost a tenth of the
start-up time."""
_BUS_HANDLER = "CQSTORE_BUS_HANDLER"
"""See ``cqstore.store.core.BUS_HANDLER``: this process is ours, so it may handle signals."""

app = typer.Typer(
    name="cqstore",
    cls=RootGroup,
    help="Open, check, read, search and append to message stores of Apache RocketMQ.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(*, value: bool) -> None:
    if value:
        typer.echo(f"cqstore {version('cqstore')}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    *,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="List the keys in --config that cqstore ignores.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Open, check, read, search and append to message stores of Apache RocketMQ."""
    VERBOSE.set(verbose)
    before = QUIET.set(quiet)
    ctx.call_on_close(lambda: QUIET.reset(before))


_WAITING = {"put", "tail", "top"}
"""Verbs that wait for input or for Ctrl-C, and therefore show no progress."""
_PLACES = {"import": "cqstore.cli.commands.import_:import_"}
"""Functions of the verbs whose names are Python keywords."""
_VERBS = (
    "info", "check", "dump", "get", "tail", "export", "import", "put", "topics", "offset", "query",
    "clean", "backup", "recover", "mode", "rebuild", "completion", "top",
)  # fmt: skip
for _name in _VERBS:
    _place = _PLACES.get(_name, f"cqstore.cli.commands.{_name}:{_name}")
    add_verb(app, _name, _place, has_progress=_name not in _WAITING)


def _add_commands_of_upper_layers() -> None:
    """Add the commands of packages above the store, by their entry points."""
    for entry in entries(COMMANDS_GROUP):
        upper: typer.Typer = entry.load()
        only = _only_command(upper)
        if only is not None:
            app.registered_commands.append(only)
        else:
            app.add_typer(upper, name=entry.name)


def _only_command(upper: typer.Typer) -> CommandInfo | None:
    """Return the command of an application with a single command, which is not a group."""
    if upper.registered_callback or upper.registered_groups or len(upper.registered_commands) != 1:
        return None
    return upper.registered_commands[0]


def main() -> None:
    """Run the command line; report an error as one sentence on stderr and an exit code."""
    os.environ.setdefault(_BLAS_THREADS, "1")
    os.environ.setdefault(_BUS_HANDLER, "1")
    gc.set_threshold(_OBJECTS_A_COLLECTION, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)  # otherwise the last collection scans every module
    try:
        guard_streams()
        try:
            _run()
        finally:
            sys.stdout.flush()
    except ReaderGoneError as exc:
        sys.exit(exc.exit_code)
    except OutputError as exc:
        _stop(exc, exc.exit_code)


def _run() -> None:
    """Run the command line; an error ends the process with its exit code.

    Raises:
        OutputError: standard output cannot be written.
    """
    with ended_by_interrupt():
        _add_commands_of_upper_layers()
    if COMPLETE in os.environ:
        make_ready()
    try:
        app()
    except OutputError:
        raise
    except CorruptionError as exc:
        _stop(exc, EXIT_DAMAGE)
    except StoreError as exc:
        _stop(exc, EXIT_REFUSED)
    except ValueError as exc:  # a path or name from the command line cannot be put into JSON
        if _SURROGATES not in str(exc):
            raise
        reason = (
            "a path or a name is not UTF-8, and this command has to store it: rename it, or use a"
            " symbolic link with a UTF-8 name"
        )
        _stop(StoreConfigError(reason), EXIT_REFUSED)
    except OSError as exc:  # accessing a path failed, and no nearer handler reported it
        if exc.filename is None:
            _stop_without_folder()
            raise
        place = Path(os.fsdecode(exc.filename))
        _stop(StoreIOError(f"cannot access the path: {exc.strerror}", path=place), EXIT_REFUSED)


def _stop_without_folder() -> None:
    """End the process if the current folder no longer exists: relative paths have no meaning."""
    try:
        os.getcwd()  # noqa: PTH109 - the call that resolves relative paths
    except FileNotFoundError:
        _stop(StoreIOError("the current folder no longer exists"), EXIT_REFUSED)


def _stop(exc: StoreError, code: int) -> None:
    print(f"cqstore: {exc}", file=sys.stderr)
    sys.exit(code)
