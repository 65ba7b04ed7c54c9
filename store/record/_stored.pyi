from cqstore.store.record.host import Host
from cqstore.store.record.layout import Buffer
from cqstore.store.record.record_layout import RecordHead, RecordTail

class StoredMessage:
    """One record of the log. Fields are decoded on access; text, body and dict are kept.

    Keeps the buffer alive that it was created from (in a pull the mapped file); copy with
    ``bytes(message.record)`` to release it.
    """

    def __init__(self, record: Buffer, phy_offset: int | None = None) -> None:
        """Read the record that fills ``record``; ``phy_offset`` is its position in the log.

        Raises:
            CorruptionError: lengths and size are inconsistent, or the magic code is invalid.
        """

    @property
    def record(self) -> Buffer:
        """The record's bytes in the log: the buffer it was created from, or a view of the log."""

    @property
    def head(self) -> RecordHead:
        """The first fixed part of the record."""

    @property
    def tail(self) -> RecordTail:
        """The fixed part between the store host and the body."""

    @property
    def queue_id(self) -> int:
        """The queue id."""

    @property
    def queue_offset(self) -> int:
        """The queue offset in units; 0 if the record is not queued."""

    @property
    def phy_offset(self) -> int:
        """The phy offset of the record, as stored in the record."""

    @property
    def sys_flag(self) -> int:
        """The flag bits as stored."""

    @property
    def is_passed_over(self) -> bool:
        """Whether this record is a filler that replaces a damaged record, and not a message."""

    @property
    def size(self) -> int:
        """The size of the whole record in bytes."""

    @property
    def store_timestamp(self) -> int:
        """The time of the append to the log, in ms."""

    @property
    def topic(self) -> str:
        """The topic.

        Raises:
            CorruptionError: the topic is not valid UTF-8.
        """

    @property
    def stored_body(self) -> Buffer:
        """The body as stored in the log, possibly compressed: a view, no copy."""

    @property
    def body(self) -> bytes:
        """The body, decompressed.

        Raises:
            CorruptionError: the body cannot be decompressed.
            UnsupportedFormatError: the compression type is unknown.
        """

    @property
    def properties_bytes(self) -> bytes:
        """The properties as stored."""

    @property
    def properties(self) -> dict[str, str]:
        """The properties as a dict."""

    @property
    def born_host(self) -> Host:
        """The producer's address."""

    @property
    def store_host(self) -> Host:
        """The broker's address."""

    @property
    def message_id(self) -> str:
        """The offset message id: store host, port and phy offset in hex."""

    def check_body(self) -> None:
        """Check the body's CRC.

        Raises:
            ChecksumError: the CRC differs. An empty body has no CRC to check.
        """

    def check_property_crc(self) -> None:
        """Check the CRC over the whole record that ``enabledAppendPropCRC`` appends.

        Raises:
            ChecksumError: the CRC is missing or differs.
        """
