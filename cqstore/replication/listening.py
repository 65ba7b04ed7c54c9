"""Listening sockets, and the networks whose clients are served."""

import ipaddress
import socket

from cqstore.replication.endpoint import endpoint
from cqstore.store.errors import StoreIOError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOOPBACK: tuple[Network, ...] = (
    ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"),
)  # fmt: skip
_BACKLOG = 128


def check_listen(host: str, port: int) -> None:
    """Refuse an address that is not available, before a store is opened.

    Raises:
        StoreIOError: cannot listen on the address.
    """
    listen(host, port).close()


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, which does not block.

    Raises:
        StoreIOError: cannot listen on the address.
    """
    try:
        kind, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server((address[0], port), family=kind, backlog=_BACKLOG)
    except OSError as exc:
        why = str(exc.strerror or exc).partition(" (while")[0]  # Python's suffix repeats it
        raise StoreIOError(f"cannot listen on {endpoint(host, port)}: {why}") from exc
    listener.settimeout(0)
    return listener


def peer_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return a peer's address; an IPv4-mapped IPv6 address is returned as IPv4."""
    ip = ipaddress.ip_address(text.partition("%")[0])
    return getattr(ip, "ipv4_mapped", None) or ip


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can connect to ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
