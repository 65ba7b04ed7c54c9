"""Request: one received command and its parameters, checked when they are used."""

from cqstore.remoting.command import IS_RESPONSE, Command
from cqstore.serve.codes import ResponseCode
from cqstore.store.java_numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN

MAX_NAME = 255
"""Maximum number of characters of a group's or topic's name, a broker's own limit."""
_MAX_DIGITS = 20
_INT_DIGITS = 9
"""A number with at most this many digits is a Java ``int``."""


class RefusedRequestError(Exception):
    """A request is answered with this code and remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class Request:
    """One received request."""

    __slots__ = ("body", "command", "local_address", "peer")

    def __init__(self, command: Command, peer: str, local_address: str) -> None:
        self.command = command
        self.body = command.body
        self.peer = peer
        """Address of the client, ``HOST:PORT``."""
        self.local_address = local_address
        """Address of this server to which the client is connected, ``HOST:PORT``."""

    def text(self, name: str, default: str | None = None) -> str:
        """Return a parameter.

        Raises:
            RefusedRequestError: it is missing, and has no default.
        """
        found = self.command.fields.get(name, default)
        if found is None:
            raise _invalid(f"the field {name} is missing")
        return found

    def name(self, name: str) -> str:
        """Return a parameter that is the name of a topic or group.

        Raises:
            RefusedRequestError: it is missing, empty, or longer than such names.
        """
        found = self.text(name)
        if not 0 < len(found) <= MAX_NAME:
            raise _invalid(f"the field {name} has {len(found)} characters, not 1 to {MAX_NAME}")
        return found

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a parameter that is a Java ``int``.

        Raises:
            RefusedRequestError: it is missing, and has no default, or is no ``int``.
        """
        return self._number(name, INT_MIN, INT_MAX, default)

    def long(self, name: str, default: int | None = None) -> int:
        """Return a parameter that is a Java ``long``.

        Raises:
            RefusedRequestError: it is missing, and has no default, or is no ``long``.
        """
        return self._number(name, LONG_MIN, LONG_MAX, default)

    def flag(self, name: str) -> bool:
        """Return a parameter that is a Java ``boolean``; one that is missing is false."""
        return self.command.fields.get(name, "").lower() == "true"

    def respond(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str = "",
        fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Command:
        """Return the response to this request, in the form of its header."""
        command = self.command
        return Command(
            code, command.opaque, IS_RESPONSE, fields or {}, body, remark, form=command.form
        )

    def _number(self, name: str, low: int, high: int, default: int | None) -> int:
        text = self.command.fields.get(name)
        if text is None:
            if default is None:
                raise _invalid(f"the field {name} is missing")
            return default
        if len(text) <= _INT_DIGITS and text.isascii() and text.isdecimal():
            return int(text)
        digits = text[1:] if text[:1] in {"-", "+"} else text
        if digits.isascii() and digits.isdecimal() and len(digits) < _MAX_DIGITS:
            number = int(text)
            if low <= number <= high:
                return number
        raise _invalid(f"the field {name} is not a number from {low} to {high}: {text[:40]!r}")


def _invalid(what: str) -> RefusedRequestError:
    return RefusedRequestError(ResponseCode.SYSTEM_ERROR, f"invalid request: {what}")
