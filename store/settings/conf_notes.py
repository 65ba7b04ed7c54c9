"""Warnings about a ``broker.conf``: misspelt keys, malformed lines, folders of another store."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from cqstore.store.path_kind import is_dir
from cqstore.store.settings.java_values import java_trim
from cqstore.store.settings.properties_file import ConfLine

_NEAR = 2
"""Maximum edit distance of a misspelt key; no other RocketMQ key is as close to one of ours."""
_SHOWN = 3
_LETTERS_A_CHANGE = 3
"""Letters of a word per changed letter; a shorter word that differs is another word (min, max)."""
_BYTE_ORDER_MARK = "\u00ef\u00bb\u00bf"
"""The UTF-8 byte-order mark as Java reads it: as part of the first key."""


class LineNote(NamedTuple):
    """A warning about a line that has no effect, or less effect than it seems to have."""

    code: str
    """``key-twice``, ``no-separator`` or ``byte-order-mark``."""
    key: str
    sentence: str


def line_notes(lines: Iterable[ConfLine]) -> Iterator[LineNote]:
    """Yield a note for each key with two values, and for the first lines without a separator.

    Java reads such a line as a key, and the text after its first blank as the value.
    """
    bare, seen = list[LineNote](), dict[str, str]()
    for number, key, value, separated in lines:
        if key.startswith(_BYTE_ORDER_MARK):
            name = key.removeprefix(_BYTE_ORDER_MARK)
            yield LineNote(
                "byte-order-mark", name,
                f"line {number}: the file begins with a byte-order mark, which is part of the key:"
                f" {name} is not set",
            )  # fmt: skip
        elif not separated:
            sentence = f"line {number} has no '=': it is read as the key {key!r}"
            bare.append(LineNote("no-separator", key, sentence))
        elif seen.get(key, value) != value:
            yield LineNote("key-twice", key, f"{key} is given twice: line {number} is used")
        seen[key] = value
    yield from islice(bare, _SHOWN)
    if len(bare) > _SHOWN:
        sentence = f"{len(bare) - _SHOWN} more lines have no '='"
        yield LineNote("no-separator", bare[_SHOWN].key, sentence)


def near_key(key: str, known: Iterable[str]) -> str | None:
    """Return the key of ``known`` that ``key`` is a misspelling of; ``None`` if there is none.

    Case, ``_``, ``-`` and ``.`` are ignored. Digits must match, and so must short words: a changed
    letter makes them a different word.
    """
    bare = _bare(key)
    found = ((_distance(bare, _bare(each)), each) for each in known)
    near = ((far, each) for far, each in found if far <= _NEAR and _means(key, each))
    return min(near, default=(0, None))[1]


def _means(key: str, meant: str) -> bool:
    """Return whether two similar keys can have the same meaning."""
    if re.findall(r"\d", key) != re.findall(r"\d", meant):
        return False
    words, others = _words(key), _words(meant)
    if len(words) != len(others):
        return True
    return all(
        _distance(one, other) * _LETTERS_A_CHANGE <= max(len(one), len(other))
        for one, other in zip(words, others, strict=True)
    )


def _words(key: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]*[a-z]+|[A-Z]+|\d+", key)]


def log_below(values: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return the keys of the log's folders, translated to folders below ``root``; or nothing.

    The settings of a container, or of the original of a copied store, name folders below their own
    ``storePathRootDir``. These mean the folders below ``root`` if all of them exist there.
    """
    base = java_trim(values.get("storePathRootDir", ""))
    if not base or os.path.realpath(base) == os.path.realpath(root):
        return {}
    moved = dict[str, str]()
    splitter = _splitter(values)
    for key in _FOLDERS:
        if text := java_trim(values.get(key, "")):
            parts = [_part_below(part, base, root) for part in text.split(splitter)]
            if None in parts:
                return {}
            moved[key] = splitter.join(map(str, parts))
    return moved if _FOLDERS[0] in moved else {}


def _part_below(part: str, base: str, root: Path) -> Path | None:
    """Return the existing folder below ``root`` for one below ``base``, or ``None``."""
    below = os.path.relpath(os.path.normpath(part), os.path.normpath(base))
    if Path(below).is_relative_to(os.pardir) or not is_dir(root / below):
        return None
    return root / below if Path(part).is_absolute() == Path(base).is_absolute() else None


def _splitter(values: Mapping[str, str]) -> str:
    return values.get("multiPathSplitter", ",")


_FOLDERS = ("storePathCommitLog", "readOnlyCommitLogStorePaths")


def read_only_without_effect(values: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence if a broker ignores the read-only folders of a log."""
    text, read_only = (java_trim(values.get(key, "")) for key in _FOLDERS)
    splitter = _splitter(values)
    if read_only and splitter not in text:
        yield (
            f"readOnlyCommitLogStorePaths has no effect: a broker reads these folders only if"
            f" storePathCommitLog contains {splitter!r} (it may be its last character)"
        )


def is_of_another(values: Mapping[str, str], root: Path, stores: Iterable[Path]) -> bool:
    """Return whether ``storePathRootDir`` is one of ``stores`` and is not ``root``."""
    base = java_trim(values.get("storePathRootDir", ""))
    if not base or (own := os.path.realpath(base)) == os.path.realpath(root):
        return False
    return own in map(os.path.realpath, stores)


def other_store(values: Mapping[str, str], root: Path, *, is_new: bool) -> Iterator[str]:
    """Yield a sentence if the settings belong to a folder other than ``root``.

    ``is_new``: a store is created there, and the folders are used as they are named.
    """
    text = java_trim(values.get("storePathRootDir", ""))
    if text and os.path.realpath(text) != os.path.realpath(root):
        yield (
            f"storePathRootDir={text} is not {root}: these settings belong to another store, or to"
            " the original of this copy"
        )
    for key, here in ({} if is_new else log_below(values, root)).items():
        yield f"{key}={java_trim(values[key])} is below that storePathRootDir: using {here}"


def _bare(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "").replace(".", "")


def _distance(one: str, other: str) -> int:
    """Return the edit distance: inserted, removed, changed letters, and swapped neighbours."""
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
        if min(before) > _NEAR and min(row) > _NEAR:
            return _NEAR + 1
    return row[-1]
