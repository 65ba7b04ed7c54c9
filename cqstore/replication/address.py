"""Network addresses as a user writes them."""

import ipaddress
import re

import typer

from cqstore.replication.listening import Network

_MAX_PORT = 65535
_NO_HOST = re.compile(r"[\s:/\[\]@?#]")
"""Characters that are invalid in host names and IPv4 addresses."""


def address(text: str, what: str = "the master", *, any_port: bool = False) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; an IPv6 address is in brackets.

    ``any_port`` also accepts port 0. ``what`` names the address in the error.

    Raises:
        typer.BadParameter: the address is invalid.
    """
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = _ipv6(host[1:-1])
    elif _NO_HOST.search(host):  # without brackets, the end of an IPv6 address is ambiguous
        host = ""
    ports = range(0 if any_port else 1, _MAX_PORT + 1)
    if not host or not port.isascii() or not port.isdecimal() or int(port) not in ports:
        raise typer.BadParameter(
            f"invalid address {text!r} for {what}: expected HOST:PORT or [IPV6]:PORT"
        )
    try:
        host.encode("idna")  # like the name lookup, which would raise in the middle of a run
    except UnicodeError as exc:
        raise typer.BadParameter(f"invalid host name in {text!r} for {what}") from exc
    return host, int(port)


def networks(texts: list[str]) -> list[Network]:
    """Return the networks that an option names.

    Raises:
        typer.BadParameter: a text is not a valid network.
    """
    try:
        return [ipaddress.ip_network(text) for text in texts]
    except ValueError as exc:
        raise typer.BadParameter(
            f"invalid network, expected a form like 10.0.0.0/24 or fd00::/8: {exc}"
        ) from exc


def _ipv6(text: str) -> str:
    """Return ``text`` if it is an IPv6 address, else an empty string."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return ""
    return text
