"""The command ``cqstore``: one module per verb."""

from cqstore.cli.importing import ended_by_interrupt

__all__ = ["main"]


def main() -> None:
    """Run the command line, see ``cqstore.cli.app.main``; Ctrl-C during imports ends it."""
    with ended_by_interrupt():
        from cqstore.cli.app import main as run  # noqa: PLC0415 - a slow import
    run()
