"""Command: one request or response of the remoting protocol, independent of its header's form.

Source: RocketMQ ``RemotingCommand``, ``SerializeType``, ``LanguageCode``.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

IS_RESPONSE, IS_ONEWAY = 1, 2
"""Bits of ``Command.flag``."""
LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST", "NODE_JS",
)  # fmt: skip
"""Names of the languages of clients, at their numbers."""
OTHER = "OTHER"
"""The language of a program that is not in the list, and of every command of cqstore."""


class HeaderForm(IntEnum):
    """Encodings of a command's header."""

    JSON = 0
    ROCKETMQ = 1
    """Numbers in two and four bytes, texts with their lengths."""


class Command(NamedTuple):
    """One request, or the response to one."""

    code: int
    """Of a request: what is requested. Of a response: the result, 0 for success."""
    opaque: int
    """The number of the request, which its response repeats."""
    flag: int = 0
    fields: Mapping[str, str] = MappingProxyType({})
    """The parameters (``extFields``)."""
    body: bytes = b""
    remark: str = ""
    language: str = OTHER
    version: int = 0
    """RocketMQ's version of the sender, the position in ``MQVersion``."""
    form: HeaderForm = HeaderForm.JSON
    skipped: int = 0
    """Number of bytes of a body that was too large to be kept; ``body`` is empty then."""

    @property
    def is_response(self) -> bool:
        """Return whether this is the response to a request."""
        return bool(self.flag & IS_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Return whether this is a request to which no response is sent."""
        return bool(self.flag & IS_ONEWAY)
