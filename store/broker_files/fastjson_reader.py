"""LenientReader: reads JSON that is invalid by the standard but accepted by fastjson2.

Files that were edited by hand or damaged at their end have such JSON. Like fastjson2 it uses the
type of each field, which determines where a comma may be missing and where a comment is allowed.

Source: fastjson2 2.0.63 ``JSONReaderUTF16``, ``ObjectReaderAdapter``, ``ObjectReaderImplMapTyped``,
``ObjectReaderImplMapString``.
"""

import re

from cqstore.store.broker_files.fastjson_kinds import (
    REFERENCE,
    TEXT,
    Fraction,
    Kind,
    Listed,
    Record,
    Scalar,
    Suffixed,
    Table,
    UnclearJsonError,
    put,
    refuse_reference,
)

SPACE = "\0 \n\r\f\t\b"
_END = "\x1a"
"""Ends the text for fastjson2, anywhere between two values."""
_SPACES = re.compile(r"[\0 \n\r\f\t\b]*")
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*(?:\n|\Z)", re.DOTALL)
_NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]*)?)([LBSFD]?)")
_WORD = re.compile(r"true|false|null")
_UNESCAPED = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_ESCAPES = {
    **{sign: sign for sign in "\"'\\/.#&[]@()_,~ "},
    "b": "\b", "t": "\t", "n": "\n", "f": "\f", "F": "\f", "r": "\r", "v": "\v",
    **{str(digit): chr(digit) for digit in range(8)},
}  # fmt: skip
_NULL = re.compile(r"null|\"(?:null)?\"|'(?:null)?'")
_MAX_DEPTH = 200


class LenientReader:
    """Reads one text."""

    def __init__(self, text: str) -> None:
        """Set the text, without spaces and byte-order mark before it; nothing is read yet."""
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self, kind: Record) -> dict[str, object] | None:
        """Return the object in the text; ``None``: the text is null.

        Raises:
            ValueError: fastjson2 refuses the text; the error has the position.
        """
        self._skip_comments()
        if self._next() in _UNESCAPED and self._is_null():
            raise UnclearJsonError("the text is a quoted null")
        found = self._record(kind)
        if self._next():
            error = self._error("the end of the text")
            raise UnclearJsonError(str(error)) if self._next() == "," else error
        return found

    def _value(self, kind: Kind) -> object:
        """Return the value here, converted, and advance past it and one comma."""
        if isinstance(kind, Scalar):
            if self._next() and self._next() in kind.not_before:
                error = self._error("a value")
                raise UnclearJsonError(str(error)) if self._next() in "}/" else error
            return kind.convert(self._scalar())
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        if isinstance(kind, Record):
            found: object = self._record(kind)
        elif isinstance(kind, Listed):
            found = self._array(kind)
        else:
            found = self._table(kind)
        self._depth -= 1
        return found

    def _record(self, kind: Record) -> dict[str, object] | None:
        """Return an object with fields; the opening brace may be missing."""
        if self._is_null():
            return None
        if self._next() == "{":
            self._at += 1
            self._skip_space()
            self._skip_comments()
        made: dict[str, object] = {}
        while not self._ends_object():
            self._skip_comments()
            name = self._name()
            try:
                field = kind.fields.get(name)
                made[name] = self._unknown() if field is None else self._value(field)
            except ValueError as exc:
                raise type(exc)(f"{name}: {exc}") from exc
        refuse_reference(made)
        return made

    def _table(self, kind: Table) -> dict[object, object] | None:
        """Return a map with one kind of value."""
        if self._is_null():
            return None
        is_of_text = kind.value is TEXT
        if self._next() == "{" or not is_of_text:
            self._expect("{")
        made: dict[object, object] = {}
        while not self._ends_object() and self._next():
            key = self._key(kind)
            try:
                put(made, kind, key, self._value(kind.value))
            except ValueError as exc:
                raise type(exc)(f"{key!r:.80}: {exc}") from exc
        refuse_reference(made)
        self._skip_comma()
        return made

    def _key(self, kind: Table) -> object:
        """Return the key of an entry, which may be a number, and advance to its value."""
        if kind.key is None and self._next() in _UNESCAPED:
            return self._name()
        if kind.value is TEXT:
            raise UnclearJsonError(str(self._error("a name in quotes")))
        at = self._at
        key = self._value(TEXT) if kind.key is None else self._scalar()
        if key == REFERENCE:
            raise UnclearJsonError(f"char {at}: references ({REFERENCE}) are not supported")
        if self._next() == ":":
            self._at += 1
            self._skip_space()
            self._skip_comments()
        elif kind.key is None:
            raise self._error("':'")
        return key

    def _array(self, kind: Listed) -> list[object] | None:
        if self._is_null():
            return None
        if self._next() == "{":
            raise UnclearJsonError(f"char {self._at}: expected an array, found an object")
        self._expect("[")
        made: list[object] = []
        while self._next() != "]":
            made.append(self._value(kind.value))
        self._at += 1
        self._skip_comma()
        self._skip_comments()
        return made

    def _scalar(self) -> object:
        """Return a number, a text, a flag, or the content of brackets."""
        sign = self._next()
        if sign in _UNESCAPED:
            found: object = self._string()
        elif sign in {"[", "{"}:
            found = self._strict_value()
        elif match := _WORD.match(self._text, self._at):
            self._at = match.end()
            found = {"true": True, "false": False}.get(match[0])
        else:
            found = self._number()
        self._skip_comma()
        return found

    def _unknown(self) -> object:
        """Return the value of a field that a broker does not use: it is parsed strictly."""
        found = self._strict_value()
        self._skip_space()
        if self._next() == ",":
            self._at += 1
            self._skip_space()
            if self._next() in {"}", "]", ""}:
                raise self._error("a field after the comma")
        elif self._next() not in {"}", "]", ""}:
            raise self._error("',' or '}'")
        return found

    def _strict_value(self) -> object:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        sign = self._next()
        if sign == "{":
            found: object = self._strict_object()
        elif sign == "[":
            found = self._strict_array()
        elif sign in _UNESCAPED:
            found = self._string()
        elif match := _WORD.match(self._text, self._at):
            self._at = match.end()
            found = {"true": True, "false": False}.get(match[0])
        else:
            found = self._number()
            if self._text[self._at - 1] in "+-":
                raise self._error("an exponent")
        self._depth -= 1
        self._skip_space()
        return found

    def _strict_object(self) -> dict[str, object]:
        self._expect("{")
        made: dict[str, object] = {}
        while self._next() != "}":
            if self._next() in _UNESCAPED:
                name = self._skipped_name()
            elif self._next() == ".":
                raise self._error("a name")
            else:
                name = str(TEXT.convert(self._number()))
                self._skip_space()
                self._expect(":", comments=False)
            made[name] = self._strict_value()
            self._separate("}")
        self._at += 1
        return made

    def _skipped_name(self) -> str:
        try:
            return self._name()
        except ValueError as exc:  # fastjson2 does not check escapes here
            raise UnclearJsonError(str(exc)) from exc

    def _strict_array(self) -> list[object]:
        self._expect("[")
        made: list[object] = []
        while self._next() != "]":
            made.append(self._strict_value())
            self._separate("]")
        self._at += 1
        return made

    def _separate(self, closing: str) -> None:
        """Advance past the comma, which a closing bracket must not follow."""
        self._skip_space()
        if self._next() == closing:
            return
        self._expect(",", comments=False)
        if self._next() == closing:
            raise self._error("a value after the comma")

    def _name(self) -> str:
        """Return the name of a field, and advance to its value."""
        if self._next() not in _UNESCAPED:
            error = self._error("a name in quotes")
            is_null = self._text.startswith("null", self._at)  # which fastjson2 skips
            raise UnclearJsonError(str(error)) if is_null else error
        name = self._string()
        self._skip_space()
        self._expect(":", comments=False)
        return name

    def _string(self) -> str:
        """Return the quoted text here; it may contain line breaks."""
        quote, at, parts = self._text[self._at], self._at + 1, list[str]()
        unescaped = _UNESCAPED[quote]
        while True:
            match = unescaped.match(self._text, at)
            assert match is not None  # it also matches an empty text
            parts.append(match[0])
            at = match.end()
            if at >= len(self._text):
                raise self._error("the closing quote")
            if self._text[at] == quote:
                break
            escaped = self._text[at + 1 : at + 2]
            digits = {"u": 4, "x": 2}.get(escaped, 0)
            if digits:
                code = self._text[at + 2 : at + 2 + digits]
                if not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", code):
                    raise UnclearJsonError(f"char {at}: expected {digits} hexadecimal digits")
                parts.append(chr(int(code, 16)))
            elif escaped in _ESCAPES:
                parts.append(_ESCAPES[escaped])
            else:
                error = ValueError if escaped.isascii() else UnclearJsonError
                raise error(f"char {at}: expected a valid escape, found {escaped!r}")
            at += 2 + digits
        self._at = at + 1
        return _paired("".join(parts))

    def _number(self) -> int | Fraction:
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            error = self._error("a value")
            raise UnclearJsonError(str(error)) if self._next() in {*"+-eELBSFD"} else error
        self._at = match.end()
        digits = match[1].rstrip("+-eE") or "0"
        if match[2] in {"F", "D"}:
            return Fraction(digits if "e" in digits.lower() else f"{digits}e0")
        if digits.lstrip("+-").rstrip(".").isdecimal():
            number = int(digits.rstrip("."))
            return Suffixed(number) if match[2] else number
        return Fraction(digits)

    def _is_null(self) -> bool:
        """Skip null, and texts that mean null; return whether there was one."""
        match = _NULL.match(self._text, self._at)
        if match is None:
            return False
        self._at = match.end()
        self._skip_comma()
        return True

    def _ends_object(self) -> bool:
        if self._next() != "}":
            return False
        self._at += 1
        self._skip_comma()
        self._skip_comments()
        return True

    def _expect(self, sign: str, *, comments: bool = True) -> None:
        if self._next() != sign:
            raise self._error(repr(sign))
        self._at += 1
        self._skip_space()
        if comments:
            self._skip_comments()

    def _skip_comma(self) -> None:
        """Skip spaces, one comma, and spaces."""
        self._skip_space()
        if self._text.startswith(",", self._at):
            self._at += 1
            self._skip_space()

    def _skip_space(self) -> None:
        match = _SPACES.match(self._text, self._at)
        if match is not None:
            self._at = match.end()

    def _skip_comments(self) -> None:
        while match := _COMMENT.match(self._text, self._at):
            self._at = match.end()
            self._skip_space()

    def _next(self) -> str:
        """Return the character here, empty at the end."""
        sign = self._text[self._at : self._at + 1]
        return "" if sign == _END else sign

    def _error(self, expected: str) -> ValueError:
        found = self._text[self._at : self._at + 12]
        # fastjson2 accepts some Latin-1 characters as spaces in some places; 0xA0 is one.
        error = UnclearJsonError if "\x80" <= found[:1] <= "\xff" else ValueError
        return error(f"char {self._at}: expected {expected}, found {found!r}")


def _paired(text: str) -> str:
    """Return ``text`` with each surrogate pair replaced by its character."""
    if not any("\ud800" <= sign <= "\udfff" for sign in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
