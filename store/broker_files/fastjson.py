"""JSON files of a broker, read as RocketMQ 5.5.1 reads them.

RocketMQ's writer leaves keys that are integers without quotes (``{0:12,1:5}``), which is no JSON.
Its reader, fastjson2, takes much more than the standard: decision 86. Text that is strict JSON but
for such keys is read by the standard library; all other text by ``LenientReader``.

Source: RocketMQ ``RemotingSerializable.fromJson``, ``MixAll.file2String``.
"""

import json
import re
from pathlib import Path
from typing import NoReturn

from cqstore.store.broker_files.fastjson_kinds import (
    Fraction,
    Record,
    UnclearJsonError,
    converted,
)
from cqstore.store.broker_files.fastjson_reader import SPACE, LenientReader
from cqstore.store.errors import CorruptionError, RefusedStoreError

# A text that does not end is taken whole, so that none of its signs is looked at twice.
_BARE_KEY = re.compile(
    r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|([{,]\s*+)(0|-?[1-9][0-9]*+)(?=\s*+:)', re.DOTALL
)
_LOOKS_BARE = re.compile(r"[{,]\s*+-?[0-9]++\s*+:")
"""Inside of a text too; without such a place the text is as it should be, and most tables are."""
_ANY, _BOM = Record({}), "\ufeff"


def quoted_keys(text: str) -> str:
    """Return ``text`` with quotes around all keys; takes time in proportion to its length."""
    return _BARE_KEY.sub(_quoted, text) if _LOOKS_BARE.search(text) else text


def _quoted(match: re.Match[str]) -> str:
    return match[0] if match[2] is None else f'{match[1]}"{match[2]}"'


def broker_object(data: bytes, kind: Record = _ANY) -> dict[str, object]:
    """Return the object that ``data`` is, its fields converted to what ``kind`` says.

    Fields that ``kind`` does not name are as they are in the file. Null is an object without
    fields.

    Raises:
        ValueError: a broker refuses it; the sentence says where.
    """
    return _parsed(data, kind) or {}


def broker_row(data: bytes, kind: Record) -> dict[str, object]:
    """Return what ``broker_object`` does of a row of a database.

    Raises:
        ValueError: a broker refuses it; null too.
    """
    found = _parsed(data, kind)
    if found is None:
        raise ValueError("expected an object, found null")
    return found


def _parsed(data: bytes, kind: Record) -> dict[str, object] | None:
    # Java decodes like this too, and begins and ends the text like this.
    text = data.decode("utf-8", "replace").strip(SPACE)
    text = text.removeprefix(_BOM).lstrip(SPACE)
    try:
        found = json.loads(
            quoted_keys(text), parse_constant=_no_number, parse_float=Fraction,
            object_pairs_hook=_object,
        )  # fmt: skip
        made = converted(found, kind, is_whole=True)
    except (ValueError, RecursionError):
        made = LenientReader(text).read(kind)  # whose sentence says where
    assert made is None or isinstance(made, dict)  # as ``kind`` says
    return made


def object_in(path: Path, data: bytes, kind: Record = _ANY) -> dict[str, object]:
    """Return the object that ``data`` of the file or database ``path`` is, see ``broker_object``.

    Raises:
        CorruptionError: a broker refuses it, and reads the backup of a file.
        RefusedStoreError: it is not known what a broker makes of it; its backup must not count.
    """
    try:
        return broker_object(data, kind)
    except UnclearJsonError as exc:
        raise RefusedStoreError(
            f"cannot determine how a broker reads this file: {exc}. Rewrite it as standard JSON",
            path=path,
        ) from exc
    except ValueError as exc:
        raise CorruptionError(f"a broker cannot read this file: {exc}", path=path) from exc


def encoded(content: object) -> bytes:
    """Return the bytes of a file, in lines as a broker writes them; names of keys in quotes."""
    return json.dumps(content, ensure_ascii=False, indent="\t", separators=(",", ":")).encode()


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("duplicate field name")
    return made


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"invalid number {text}")
