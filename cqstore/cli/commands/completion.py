"""``cqstore completion``: Tab completion of verbs, options and their values."""

from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any

import typer

COMPLETE = "_CQSTORE_COMPLETE"
"""Environment variable with which a shell requests completions."""


class Shell(StrEnum):
    """Shells with completion support."""

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
    """Return typer's completion module, imported lazily because it is rarely needed."""
    return import_module("typer.completion")
