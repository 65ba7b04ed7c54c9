"""A record encoder and decoder of its own, from the format page alone: nothing of ours is used."""

import struct
import zlib
from dataclasses import dataclass

V1, V2 = 0xDAA320A7, 0xDAA320AB


@dataclass(frozen=True)
class PlainRecord:
    """The twenty fields, as plain as can be."""

    topic: bytes = b"T"
    body: bytes = b"hi"
    properties: bytes = b"TAGS\x01A\x02"
    queue_id: int = 1
    flag: int = 0
    queue_offset: int = 7
    phy_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 1700000000000
    born_host: bytes = bytes([127, 0, 0, 1, 0, 0, 4, 210])
    store_timestamp: int = 1700000000001
    store_host: bytes = bytes([10, 0, 0, 2, 0, 0, 42, 159])
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    def encode(self) -> bytes:
        """Return the record's bytes."""
        wide = len(self.topic.decode()) > 127
        middle = struct.pack(">iiqqiq", self.queue_id, self.flag, self.queue_offset,
                             self.phy_offset, self.sys_flag, self.born_timestamp)  # fmt: skip
        rest = b"".join([
            struct.pack(">I", zlib.crc32(self.body) & 0x7FFFFFFF), middle, self.born_host,
            struct.pack(">q", self.store_timestamp), self.store_host,
            struct.pack(">iqi", self.reconsume_times, self.prepared_transaction_offset,
                        len(self.body)),
            self.body, len(self.topic).to_bytes(2 if wide else 1, "big"), self.topic,
            len(self.properties).to_bytes(2, "big"), self.properties,
        ])  # fmt: skip
        return struct.pack(">II", len(rest) + 8, V2 if wide else V1) + rest
