"""JSON as RocketMQ writes it, made JSON.

RocketMQ's writer leaves keys that are integers without quotes (``{0:12,1:5}``), which is no JSON.
It reads both forms.

Source: RocketMQ ``RemotingSerializable.toJson``.
"""

import json
import re
from typing import NoReturn

# A text that does not end is taken whole, so that none of its signs is looked at twice.
_BARE_KEY = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|([{,]\s*+)(-?[0-9]++)(?=\s*+:)', re.DOTALL)
_LOOKS_BARE = re.compile(r"[{,]\s*+-?[0-9]++\s*+:")
"""Inside of a text too; without such a place the text is as it should be, and most tables are."""


def quoted_keys(text: str) -> str:
    """Return ``text`` with quotes around all keys; takes time in proportion to its length."""
    return _BARE_KEY.sub(_quoted, text) if _LOOKS_BARE.search(text) else text


def _quoted(match: re.Match[str]) -> str:
    return match[0] if match[2] is None else f'{match[1]}"{match[2]}"'


def broker_object(data: bytes) -> dict[str, object]:
    """Return the object that ``data`` is.

    Raises:
        ValueError: it is none; the sentence says where.
    """
    try:
        found = json.loads(quoted_keys(data.decode()), parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - it is the text's fault
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
