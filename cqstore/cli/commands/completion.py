"""``cqstore completion``: verbs, options and their values at the Tab key."""

from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any

import typer

COMPLETE = "_CQSTORE_COMPLETE"
"""A variable of the environment by which a shell asks what may follow."""


class Shell(StrEnum):
    """Shells whose words are completed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        Shell, typer.Argument(metavar="bash|zsh|fish", help="Shell to print the script for.")
    ],
) -> None:
    """Print the completion script for bash, zsh or fish.

    For bash, append the output to ~/.bash_completion. For zsh, write it to a file named _cqstore in
    a folder of $fpath. For fish, write it to ~/.config/fish/completions/cqstore.fish.

    Examples:
        cqstore completion bash >> ~/.bash_completion
        cqstore completion fish > ~/.config/fish/completions/cqstore.fish
    """
    made = _typers().get_completion_script
    typer.echo(made(prog_name="cqstore", complete_var=COMPLETE, shell=shell.value))


def make_ready() -> None:
    """Make the application answer the completion requests of a shell (``COMPLETE``)."""
    _typers().completion_init()


def _typers() -> Any:
    """Return typer's own module, which is seldom needed and exports nothing to type checkers."""
    return import_module("typer.completion")
