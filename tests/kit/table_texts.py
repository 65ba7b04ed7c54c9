"""Texts of a broker's tables, mutated as hands, editors and power cuts do it."""

import json
import random
import re
from collections.abc import Iterator, Mapping

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+|true|false|null|[{}\[\]:,]')
_PIECES = [
    ",", ",,", ":", "{", "}", "[", "]", "//x\n", "/*x*/", "#x\n", "null", '"x":1,', '"', "'", "\\",
    '"x":{"y":[1,2]},', "\n", " ", "\t", "\ufeff", "\r\n", "100L", "1e2", "+", "-", "0", ".5", "x",
    "1.0", "true", "false", '""', '"null"', '"5"', "\u00a0", "ü", "测", "\x1a", '"\\u0041"', "NaN",
    "\\x41", ";", "e", "E", "L", "D", "$ref", "@type", "\x0b", "\f", "\b", "{}", "[]", '"a\nb"',
]  # fmt: skip
_SIGNS = "{}[]:,\"'0123456789+-.eEnl/*\\ "
_SCALARS = [
    "8", "8.0", "8.9", "+8", "08", "8L", "1e2", "1E+2", "8.", ".5", "'8'", '"8"', '"8.5"', '"+8"',
    '"08"', '""', '"null"', "null", "true", "false", "[]", "[8]", "{}", '{"a":1}', "99999999999",
    "9223372036854775807", "9223372036854775808", "-1", '"abc"', "'abc'", '"a\nb"', "0x10", "NaN",
    "1e30", '"1,000"', "-0", "TRUE", '"TRUE"', '"Y"', "tru", "8B", "8D", "1.5e3", '"1e3"', "1", "0",
    '"MULTI_TAG"', '"multi_tag"',
]  # fmt: skip


def mutated_tables(
    rng: random.Random, tables: Mapping[str, dict[str, object]]
) -> Iterator[tuple[str, bytes]]:
    """Yield the key of a table and a text of it with one to three mutations, without end."""
    while True:
        for name, table in tables.items():
            text = rendered(rng, table)
            for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
                text = _mutated(rng, text) or text
            yield name, text.encode("utf-8", "surrogatepass")


def rendered(rng: random.Random, table: Mapping[str, object]) -> str:
    """Return ``table`` as a broker or a tool may have written it."""
    text = json.dumps(
        table, ensure_ascii=rng.random() < 0.1, indent=rng.choice([None, "\t", 2]),
        separators=rng.choice([(",", ":"), (", ", ": ")]),
    )  # fmt: skip
    return re.sub(r'"(-?\d+)"(\s*):', r"\1\2:", text) if rng.random() < 0.7 else text


def _mutated(rng: random.Random, text: str) -> str:
    tokens = list(_TOKEN.finditer(text))
    if not tokens or rng.random() < 0.4:
        return _mutated_anywhere(rng, text)
    values = [each for each in tokens if each[0][0] not in "{}[]:,"] or tokens
    token = rng.choice(values if rng.random() < 0.5 else tokens)
    found, piece = token[0], rng.choice(_PIECES)
    quoted = f"'{found[1:-1]}'" if found.startswith('"') and "'" not in found else found
    instead = rng.choice([rng.choice(_SCALARS)] * 3 + ["", found + piece, found * 2, quoted])
    return text[: token.start()] + instead + text[token.end() :]


def _mutated_anywhere(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text))
    end, piece = at + rng.randrange(1, 40), rng.choice(_PIECES)
    return rng.choice([
        text[:at] + text[end:], text[:at] + piece + text[at:], text[:end] + text[at:], text[:at],
        text[:at] + rng.choice(_SIGNS) + text[at + 1 :], text + piece, piece + text,
        text + "\0" * 9, f"\ufeff{text}",
    ])  # fmt: skip
