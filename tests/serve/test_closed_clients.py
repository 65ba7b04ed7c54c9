"""What a client sent before it closed is handled, also if it read no response."""

import socket
import struct
from pathlib import Path

import pytest

from cqstore.store.service.message_store import MessageStore
from tests.kit.remoting_client import asked
from tests.kit.sends import SEND_V2, sent
from tests.kit.waiting import becomes, run
from tests.kit.writable_server import writing
from tests.serve.conftest import CONFIG

COUNT = 200
"""Several turns of the server."""
CLOSES_WITH_RESET = struct.pack("ii", 1, 0)


def test_what_a_client_sent_before_it_closed_is_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Go client's one-way messages ask for responses, and it closes without reading them."""
    monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.max_size", 1 << 10)

    async def story(store: MessageStore) -> None:
        async with writing(store) as found:
            client = socket.create_connection(("127.0.0.1", found.port))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CLOSES_WITH_RESET)
            for number in range(COUNT):
                client.sendall(asked(SEND_V2, number, sent(v2=True), b"%d" % number))
            await becomes(lambda: store.max_offset("t", 1) > 0)
            client.close()  # the next response cannot be sent, most requests were not read yet
            await becomes(lambda: found.server.figures().connections == 0)
            assert found.server.figures().memory_bytes == 0

    with MessageStore.open(tmp_path / "store", CONFIG) as opened:
        run(story(opened))
        found: list[bytes] = []
        while messages := opened.get_message("t", 1, len(found)).messages():
            found += [bytes(each.body) for each in messages]
    assert found == [b"%d" % number for number in range(COUNT)]
