from collections.abc import Mapping
from dataclasses import Field
from typing import Any

from cqstore.store.record.message import Message as Message

class HostWire:
    wire: bytes

def bind_message(loopback: HostWire, fields: Mapping[str, Field[Any]]) -> None: ...
