"""The same answers over TLS; a client without the right certificate costs its connection."""

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest

from cqstore.replication.tls import master_context
from tests.kit.remoting_client import Client, pull
from tests.kit.remoting_server import serving
from tests.kit.waiting import run


@pytest.fixture(scope="module")
def cert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this machine that signs itself, with its key."""
    folder = tmp_path_factory.mktemp("tls")
    words = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj"
        f" /CN=me -addext subjectAltName=IP:127.0.0.1 -keyout {folder}/key -out {folder}/cert"
    )
    subprocess.run(words.split(), check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes((folder / "cert").read_bytes() + (folder / "key").read_bytes())
    return both


def test_clients_are_answered_over_tls(root: Path, cert: Path) -> None:
    async def story() -> None:
        async with serving(root, tls=master_context(cert, None, None)) as found:
            trusting = ssl.create_default_context(cafile=cert)
            secure = Client(*await asyncio.open_connection("127.0.0.1", found.port, ssl=trusting))
            found.clients.append(secure)
            whole = await secure.ask(11, pull("t", 0, 0))
            assert (whole.code, len(whole.body) > 3000) == (0, True)
            waiting = secure.send(11, pull("t", 0, 30, wait_ms=50))
            assert (await secure.answer(waiting)).code == 19
            plain = await found.client()  # speaks no TLS
            plain.send(30, {"topic": "t", "queueId": 0})
            assert await plain.is_closed()
            with pytest.raises(ssl.SSLError):  # does not trust the server
                await asyncio.open_connection(
                    "127.0.0.1", found.port, ssl=ssl.create_default_context()
                )
            assert (await secure.ask(11, pull("t", 1, 0))).code == 0

    run(story())
