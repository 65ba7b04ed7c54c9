"""JSON files of a broker, read as RocketMQ 5.5.1 reads them.

RocketMQ's writer leaves keys that are integers without quotes (``{0:12,1:5}``), which is not valid
JSON. Its reader, fastjson2, accepts much more than the standard: decision 86. Text that is strict
JSON except for such keys is read by the standard library; all other text by ``LenientReader``.

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

# An unterminated text is matched to its end, so that no character is read twice.
_BARE_KEY = re.compile(
    r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|([{,]\s*+)(0|-?[1-9][0-9]*+)(?=\s*+:)', re.DOTALL
)
_LOOKS_BARE = re.compile(r"[{,]\s*+-?[0-9]++\s*+:")
"""Also matches inside a text. Without a match the JSON has quoted keys, as most tables do."""
_ANY, _BOM = Record({}), "\ufeff"


def quoted_keys(text: str) -> str:
    """Return ``text`` with quotes around all keys; the time is linear in its length."""
    return _BARE_KEY.sub(_quoted, text) if _LOOKS_BARE.search(text) else text


def _quoted(match: re.Match[str]) -> str:
    return match[0] if match[2] is None else f'{match[1]}"{match[2]}"'


def broker_object(data: bytes, kind: Record = _ANY) -> dict[str, object]:
    """Return the object in ``data``, with its fields converted as ``kind`` specifies.

    Fields that are not in ``kind`` are returned as they are in the file. Null is an object without
    fields.

    Raises:
        ValueError: a broker refuses the data; the error has the position.
    """
    return _parsed(data, kind) or {}


def broker_row(data: bytes, kind: Record) -> dict[str, object]:
    """Return the result of ``broker_object`` for a row of a database.

    Raises:
        ValueError: a broker refuses the row; null is refused too.
    """
    found = _parsed(data, kind)
    if found is None:
        raise ValueError("expected an object, found null")
    return found


def _parsed(data: bytes, kind: Record) -> dict[str, object] | None:
    # Java decodes and trims the text in the same way.
    text = data.decode("utf-8", "replace").strip(SPACE)
    text = text.removeprefix(_BOM).lstrip(SPACE)
    try:
        found = json.loads(
            quoted_keys(text), parse_constant=_no_number, parse_float=Fraction,
            object_pairs_hook=_object,
        )  # fmt: skip
        made = converted(found, kind, is_whole=True)
    except (ValueError, RecursionError):
        made = LenientReader(text).read(kind)  # its error has the position
    assert made is None or isinstance(made, dict)  # ``kind`` is a record
    return made


def object_in(path: Path, data: bytes, kind: Record = _ANY) -> dict[str, object]:
    """Return the object in ``data`` of the file or database ``path``, see ``broker_object``.

    Raises:
        CorruptionError: a broker refuses the data, and reads the backup of a file.
        RefusedStoreError: it is unknown how a broker reads the data; the backup must not be used.
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
    """Return the bytes of a file, in lines as a broker writes them, with quotes around keys."""
    return json.dumps(content, ensure_ascii=False, indent="\t", separators=(",", ":")).encode()


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("duplicate field name")
    return made


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"invalid number {text}")
