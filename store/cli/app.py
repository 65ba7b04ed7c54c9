"""The application: its verbs, those of upper layers, and how an error ends it.

Exit codes: 0 fine, 1 damage or difference found, 2 wrong use or refused.
"""

import sys
from collections.abc import Callable
from importlib.metadata import entry_points, version
from typing import Annotated

import typer

from store.cli import (
    check,
    clean,
    dump,
    get,
    info,
    mode,
    offset,
    put,
    query,
    rebuild,
    recover,
    top,
    topics,
)
from store.cli.options import VERBOSE
from store.errors import CorruptionError, StoreError

COMMANDS_GROUP = "cqstore.commands"
EXIT_DAMAGE = 1
EXIT_REFUSED = 2

app = typer.Typer(
    name="cqstore",
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
    *,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Name every key of --config that is not ours.")
    ] = False,
) -> None:
    """Open, check, read, search and append to message stores of Apache RocketMQ."""
    VERBOSE.set(verbose)


for name, verb in (
    ("info", info.info),
    ("check", check.check),
    ("dump", dump.dump),
    ("get", get.get),
    ("put", put.put),
    ("topics", topics.topics),
    ("offset", offset.offset),
    ("query", query.query),
    ("clean", clean.clean),
    ("recover", recover.recover),
    ("mode", mode.mode),
    ("rebuild", rebuild.rebuild),
    ("top", top.top),
):
    app.command(name)(verb)


def _add_commands_of_upper_layers() -> None:
    for entry in entry_points(group=COMMANDS_GROUP):
        upper: typer.Typer = entry.load()
        only = _only_command(upper)
        if only is not None:
            app.command(entry.name)(only)
        else:
            app.add_typer(upper, name=entry.name)


def _only_command(upper: typer.Typer) -> Callable[..., object] | None:
    """Return the command of an application that has one and nothing else: that is no group."""
    if upper.registered_callback or upper.registered_groups or len(upper.registered_commands) != 1:
        return None
    return upper.registered_commands[0].callback


def main() -> None:
    """Run the command line; a fault is one sentence on standard error and an exit code."""
    _add_commands_of_upper_layers()
    try:
        app()
    except CorruptionError as exc:
        _stop(exc, EXIT_DAMAGE)
    except StoreError as exc:
        _stop(exc, EXIT_REFUSED)
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        sys.stderr.close()
        sys.exit(EXIT_DAMAGE)


def _stop(exc: StoreError, code: int) -> None:
    print(f"cqstore: {exc}", file=sys.stderr)
    sys.exit(code)
