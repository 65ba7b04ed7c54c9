"""The command ``cqstore``: one file a verb."""

from store.cli.app import main

__all__ = ["main"]
