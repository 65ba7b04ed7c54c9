"""The command ``cqstore``: one file a verb."""

from cqstore.cli.app import main

__all__ = ["main"]
