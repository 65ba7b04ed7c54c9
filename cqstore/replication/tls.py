"""TLS between a cqstore master and follower. RocketMQ's replication does not support it."""

import ssl
from collections.abc import Sequence
from pathlib import Path

from cqstore.store.errors import StoreConfigError
from cqstore.store.path_kind import exists

_NO_PEM = "no valid PEM data found"


def master_context(cert: Path, key: Path | None, client_ca: Path | None) -> ssl.SSLContext:
    """Return the TLS context of a master; ``client_ca`` must have signed followers' certificates.

    Raises:
        StoreConfigError: a file cannot be read, or has an invalid content.
    """
    # Not the default context: since CPython 3.13 it refuses certificates without the key identifier
    # of their authority, which a follower accepts.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, cert, key)
    if client_ca is not None:
        _trust(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def follower_context(ca: Path, cert: Path | None) -> ssl.SSLContext:
    """Return the TLS context of a follower that trusts ``ca``.

    ``cert`` is a file with the follower's certificate and key. The master's certificate must be
    for the name or address that is followed.

    Raises:
        StoreConfigError: a file cannot be read, or has an invalid content.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _trust(context, ca)
    if cert is not None:
        _load(context, cert, None)
    return context


def _load(context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    try:
        context.load_cert_chain(cert, key)
    except OSError as exc:  # includes SSLError
        place, why = _fault(exc, [cert] if key is None else [cert, key])
        within = "" if key is None else f" in {key}"
        raise StoreConfigError(
            f"cannot load the certificate and its key{within}: {why}", path=place
        ) from exc


def _trust(context: ssl.SSLContext, ca: Path) -> None:
    try:
        context.load_verify_locations(ca)
    except OSError as exc:
        place, why = _fault(exc, [ca])
        raise StoreConfigError(f"cannot load the CA certificate: {why}", path=place) from exc


def _fault(exc: OSError, paths: Sequence[Path]) -> tuple[Path, str]:
    """Return the file that caused the error, the first if unknown, and the reason as text."""
    missing = next((path for path in paths if not exists(path)), None)
    if missing is not None:
        return missing, "the file does not exist"
    if isinstance(exc, ssl.SSLError):
        return paths[0], (exc.reason or "").replace("_", " ").lower() or _NO_PEM
    return paths[0], exc.strerror or str(exc)
