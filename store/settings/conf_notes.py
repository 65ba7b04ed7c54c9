"""Warnings about a ``broker.conf``: lines and keys that RocketMQ reads, and that do nothing."""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

_NEAR = 2
"""Changes of one letter by which a key may differ from ours; no key of RocketMQ's is so near."""
_SHOWN = 3
_SEPARATORS = "=:"
_LINE_ENDS = "\t\n\f\r"


def control_character(text: str) -> int | None:
    """Return where ``text`` has a character that no text file has, counted from 0."""
    found = (at for at, char in enumerate(text) if char < " " and char not in _LINE_ENDS)
    return next(found, None)


def ignored_lines(text: str) -> Iterator[str]:
    """Yield a sentence for each line without a separator (the first three) and each double key.

    Java takes such a line for a key, and what follows its first space for the value.
    """
    import javaproperties  # noqa: PLC0415 - as in cqstore.store.settings.broker_conf

    number, bare, seen = 1, list[str](), dict[str, str]()
    for element in javaproperties.parse(text):
        source = element.source
        if isinstance(element, javaproperties.KeyValue):
            if not any(mark in source for mark in _SEPARATORS):
                bare.append(f"line {number} has no '=': it is read as the key {element.key!r}")
            elif seen.get(element.key, element.value) != element.value:
                yield f"{element.key} is given twice: line {number} counts"
            seen[element.key] = element.value
        number += source.count("\n") or source.count("\r")
    yield from islice(bare, _SHOWN)
    if len(bare) > _SHOWN:
        yield f"{len(bare) - _SHOWN} more lines have no '='"


def near_key(key: str, known: Iterable[str]) -> str | None:
    """Return which of ``known`` is meant by ``key``; case, ``_``, ``-`` and ``.`` do not count."""
    bare = _bare(key)
    found = ((_distance(bare, _bare(each)), each) for each in known)
    return min((pair for pair in found if pair[0] <= _NEAR), default=(0, None))[1]


def other_store(pairs: Mapping[str, str], root: Path) -> Iterator[str]:
    """Yield a sentence where the settings are those of another folder than ``root``."""
    text = pairs.get("storePathRootDir", "").strip()
    if text and os.path.realpath(text) != os.path.realpath(root):
        yield (
            f"storePathRootDir={text} is another folder than {root}: these settings are of another"
            " store, or of the one that this is a copy of"
        )


def _bare(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "").replace(".", "")


def _distance(one: str, other: str) -> int:
    """Return how many letters must be put in, left out, changed, or swapped with the next one."""
    if abs(len(one) - len(other)) > _NEAR:
        return _NEAR + 1
    before, row = list[int](), list(range(len(other) + 1))
    for at, letter in enumerate(one):
        older, before, row = before, row, [at + 1]
        for to, wanted in enumerate(other):
            best = min(before[to + 1] + 1, row[to] + 1, before[to] + (letter != wanted))
            if at and to and letter == other[to - 1] and one[at - 1] == wanted:
                best = min(best, older[to - 1] + 1)
            row.append(best)
    return row[-1]
