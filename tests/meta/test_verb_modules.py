"""A verb is a module of its name, in the folder ``commands`` of its package."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from cqstore.cli.app import COMMANDS_GROUP, app
from cqstore.store.entry_points import entries

SHARED = {"groups_change": {"reset", "copy", "forget"}, "meta_repair": {"repair", "make-topics"}}
"""Modules of several verbs that share most of their code."""


def places(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the words of each verb below a command, and where its function is."""
    for name, found in getattr(command, "commands", {}).items():
        yield from places(found, (*words, name))
    if hasattr(command, "place"):
        yield words, command.place


def all_places() -> list[tuple[tuple[str, ...], str]]:
    found = [*places(typer.main.get_command(app), ())]
    for entry in entries(COMMANDS_GROUP):
        command = typer.main.get_command(entry.load())
        found += places(command, (entry.name,))
    return sorted(found)


def test_there_are_verbs_of_all_packages() -> None:
    packages = {place.split(".commands")[0] for _, place in all_places()}
    assert len(all_places()) > 45
    assert {"cqstore.cli", "cqstore.migration", "cqstore.cq_rocksdb", "cqstore.ab"} < packages


@pytest.mark.parametrize(
    ("words", "place"), all_places(), ids=lambda value: "-".join(value) * isinstance(value, tuple)
)
def test_a_verb_is_the_module_of_its_name(words: tuple[str, ...], place: str) -> None:
    folder, _, module = place.partition(":")[0].rpartition(".")
    assert folder.endswith(".commands")
    names = {"_".join(words).replace("-", "_"), words[-1]}
    assert module.rstrip("_") in names or words[-1] in SHARED[module]
