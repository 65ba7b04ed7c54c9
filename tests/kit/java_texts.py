"""Texts that RocketMQ 5.5.1 has read, with its answers: delay levels, and properties in bytes.

``tests/interop/test_java_texts.py`` asks RocketMQ again.
"""

import json
from pathlib import Path

_read = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="ascii"))
LEVELS: list[tuple[str, int | None]] = [(text, level) for text, level in _read["levels"]]
"""Text of ``DELAY`` → its level; ``None``: ``Message.getDelayTimeLevel`` refuses it."""
PROPERTIES: list[tuple[bytes, dict[str, str]]] = [
    (bytes.fromhex(data), properties) for data, properties in _read["properties"]
]
"""Bytes of a record → what ``MessageDecoder.string2messageProperties`` reads."""
