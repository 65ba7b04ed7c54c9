"""The options for TLS of commands that listen."""

import ssl
from pathlib import Path
from typing import Annotated

import typer

from cqstore.replication.tls import master_context

TlsKey = Annotated[
    Path | None, typer.Option(metavar="PEM", help="Private key, if it is not in --tls-cert.")
]


def listening_context(
    cert: Path | None, key: Path | None, client_ca: Path | None
) -> ssl.SSLContext | None:
    """Return the TLS context of a server; ``None`` without a certificate.

    Raises:
        StoreConfigError: a file cannot be read, or has an invalid content.
        typer.BadParameter: there is a key or a CA, and no certificate.
    """
    if cert is not None:
        return master_context(cert, key, client_ca)
    if key is not None or client_ca is not None:
        raise typer.BadParameter("--tls-key and --tls-client-ca need --tls-cert")
    return None
