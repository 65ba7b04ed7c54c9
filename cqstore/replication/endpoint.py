"""Network addresses and reasons of failed connections, as messages show them."""

import errno
import os
import re
import socket
import ssl

from cqstore.store.errors import StoreError, StoreIOError

_CALL_FAILED = "Connect call failed"
"""asyncio's text, followed by the system's error number for each address of a name."""
_NUMBER = re.compile(r"\[Errno (\d+)\]")
_REFUSED = "connection refused (nothing is listening on this port)"

TIMED_OUT = "timed out"
MASTER_CLOSED = "the master closed the connection"


def nothing_received(seconds: float) -> str:
    """Return why a connection that was silent for ``seconds`` is closed."""
    return f"nothing received for {seconds:g} s"


def endpoint(host: str, port: int) -> str:
    """Return ``HOST:PORT``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def find_host(host: str, port: int, what: str = "the master") -> None:
    """Resolve a host name, before any file is created.

    Raises:
        StoreIOError: the name cannot be resolved.
    """
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as exc:
        raise not_found(host, exc, what) from exc


def not_found(host: str, exc: socket.gaierror, what: str = "the master") -> StoreIOError:
    """Return the error for a host name that cannot be resolved."""
    return StoreIOError(f"cannot resolve the host name {host!r} of {what}: {exc.strerror}")


def reason_of(exc: OSError | UnicodeError | StoreError) -> str:
    """Return why a connection failed or ended; ``UnicodeError``: an invalid host name."""
    if isinstance(exc, StoreError | UnicodeError | ssl.SSLError):
        return str(exc)
    text = str(exc)
    if _CALL_FAILED in text:
        numbers = dict.fromkeys(map(int, _NUMBER.findall(text)))
        return ", ".join(map(_named, numbers)) if numbers else text
    if exc.errno == errno.ECONNREFUSED:
        return _REFUSED
    return exc.strerror or text or TIMED_OUT


def _named(number: int) -> str:
    return _REFUSED if number == errno.ECONNREFUSED else os.strerror(number)
