"""Mutations that are equal in meaning to the code: no test can notice, and each says why."""

import tomllib
from pathlib import Path

from tools.mutants.mutations import Mutation

LIST = Path(__file__).with_name("equal.toml")
Key = tuple[str, str, str]


def equal_ones(path: Path = LIST) -> dict[Key, str]:
    """Return the reasons by path, text of the line, and change."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("equal", [])
    return {(each["path"], each["line"], each["change"]): each["reason"] for each in entries}


def key_of(mutation: Mutation) -> Key:
    """Return what a mutation is known by in the list."""
    return mutation.path, mutation.text, mutation.what
