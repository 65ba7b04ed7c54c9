"""Host: the address and port of a producer or broker, as a record holds them."""

import ipaddress
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record._host import HostWire

_PORT = Struct(">i")


@dataclass(frozen=True)
class Host(HostWire):
    """An address and port, kept as its 8 (IPv4) or 20 (IPv6) bytes on disk."""

    __slots__ = ()
    wire: bytes = field()  # without `field()`, the inherited attribute would be the default

    def __post_init__(self) -> None:
        """Refuse a host that no record can hold.

        Raises:
            IllegalMessageError: ``wire`` has neither 8 nor 20 bytes.
        """
        if type(self.wire) is not bytes or len(self.wire) not in _SIZES:
            sizes = f"{_V4_SIZE} or {_V6_SIZE} bytes"
            raise IllegalMessageError(f"invalid host {self.wire!r:.60}: expected {sizes}")

    @classmethod
    def of(cls, address: str, port: int) -> "Host":
        """Build a host from text. An IPv4-mapped IPv6 address becomes IPv4, as in Java.

        Raises:
            IllegalMessageError: ``address`` is not an IP address or has a zone, or the port is not
                in 0 to 65535.
        """
        if not isinstance(address, str) or type(port) is not int:
            raise IllegalMessageError(
                f"invalid address {address!r} or port {port!r}: expected str and int"
            )
        return _host(address, port)

    @property
    def is_v6(self) -> bool:
        """Return whether the address has 16 bytes."""
        return len(self.wire) == _V6_SIZE

    @property
    def address(self) -> str:
        """Return the IP address as text."""
        return str(ipaddress.ip_address(self.wire[:-4]))

    @property
    def port(self) -> int:
        """Return the port; a port read from disk may be any 32-bit number."""
        port: int = _PORT.unpack(self.wire[-4:])[0]
        return port

    def __reduce__(self) -> tuple[type["Host"], tuple[bytes]]:
        return type(self), (self.wire,)

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if self.is_v6 else f"{self.address}:{self.port}"


_V4_SIZE = 4 + 4
_V6_SIZE = 16 + 4
_SIZES = frozenset({_V4_SIZE, _V6_SIZE})
_MAX_PORT = 65535


@lru_cache(maxsize=4096)  # only IP addresses are cached, and none is longer than 45 characters
def _host(address: str, port: int) -> Host:
    """Return the stored form of address and port.

    Raises:
        IllegalMessageError: no record can hold them.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError as exc:
        raise IllegalMessageError(f"invalid IP address {address!r:.60}") from exc
    if getattr(parsed, "scope_id", None) is not None:
        raise IllegalMessageError(f"invalid IP address {address!r:.60}: zones are not supported")
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if not 0 <= port <= _MAX_PORT:
        raise IllegalMessageError(f"invalid port {port}: expected 0 to {_MAX_PORT}")
    return Host(parsed.packed + _PORT.pack(port))


LOOPBACK = _host("127.0.0.1", 0)
