"""For installations that name this module still: installing again makes it needless."""

from analysis.command import app

__all__ = ["app"]
