"""The offset message id: store host, port and phy offset as upper-case hex.

Source: RocketMQ ``MessageDecoder.createMessageId`` and ``decodeMessageId``.
"""

import re
from struct import Struct

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.message import Host

_PHY = Struct(">q")
_DIGITS = re.compile("[0-9A-Fa-f]*")
_SIZES = {2 * (4 + 4 + 8), 2 * (16 + 4 + 8)}


def encode_message_id(store_host: Host, phy_offset: int) -> str:
    """Return the 32 (IPv4) or 56 (IPv6) hex digits."""
    return (store_host.wire + _PHY.pack(phy_offset)).hex().upper()


def decode_message_id(message_id: str) -> tuple[Host, int]:
    """Return store host and phy offset.

    Raises:
        IllegalMessageError: the id does not have 32 or 56 hex digits.
    """
    if not _DIGITS.fullmatch(message_id):  # ``fromhex`` skips spaces
        raise IllegalMessageError(f"invalid message id {message_id!r}: expected hexadecimal digits")
    if len(message_id) not in _SIZES:
        raise IllegalMessageError(
            f"invalid message id: expected 32 or 56 digits, found {len(message_id)}"
        )
    data = bytes.fromhex(message_id)
    return Host(data[: -_PHY.size]), int(_PHY.unpack(data[-_PHY.size :])[0])
