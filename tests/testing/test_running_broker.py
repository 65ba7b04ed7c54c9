"""A broker for tests of other programs: up at once, and gone without a trace."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cqstore.serve.store_writer import WriteSettings
from cqstore.store.errors import StoreIOError
from cqstore.store.service.message_store import MessageStore
from cqstore.testing import RunningBroker, running_broker
from tests.kit.remoting_client import Client
from tests.kit.sends import SEND_V2, sent
from tests.kit.waiting import run

pytest_plugins = ["pytester"]


async def put(port: int, topic: str, body: bytes) -> int:
    """Send one message as a client does; return the response code."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    code = (await client.ask(SEND_V2, sent(topic, v2=True), body)).code
    client.close()
    await asyncio.sleep(0)
    return code


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_a_broker_takes_messages_and_leaves_nothing(backend: str) -> None:
    threads = set(threading.enumerate())
    with running_broker(backend=backend) as broker:
        host, _, port = broker.address.partition(":")
        assert (host, int(port)) == ("127.0.0.1", broker.port)
        assert run(put(broker.port, "orders", b"first")) == 0
        assert run(put(broker.port, "orders", b"second")) == 0
        assert [each.body for each in broker.messages("orders")] == [b"first", b"second"]
        assert backend in repr(broker.store)
        root = broker.store.root
        connected = socket.create_connection(("127.0.0.1", broker.port))
    assert not root.exists()
    assert set(threading.enumerate()) <= threads
    with connected, suppress(ConnectionResetError):
        assert connected.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", broker.port))


def test_a_given_folder_stays_and_has_what_was_acknowledged(tmp_path: Path) -> None:
    root = tmp_path / "store"
    for number in range(2):
        with running_broker(root=root) as broker:
            assert run(put(broker.port, "t", b"%d" % number)) == 0
    with MessageStore.open(root, read_only=True) as store:
        assert [each.body for each in store.get_message("t", 1, 0).messages()] == [b"0", b"1"]


def test_a_broker_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with running_broker() as broker:
        with pytest.raises(StoreIOError, match="cannot listen"):
            _start(tmp_path / "store", broker.port)
        assert run(put(broker.port, "t", b"x")) == 0
    assert set(threading.enumerate()) <= threads
    with running_broker(root=tmp_path / "store"):  # it was closed
        pass


def _start(root: Path, port: int) -> None:
    with running_broker(root=root, port=port):
        pass


def test_settings_say_which_topics_may_be_created() -> None:
    with running_broker(settings=WriteSettings(creates_topics=False)) as broker:
        assert run(put(broker.port, "t", b"x")) == 17


def test_an_error_in_the_block_ends_the_broker() -> None:
    threads = set(threading.enumerate())
    with pytest.raises(KeyError), running_broker() as broker:
        raise KeyError
    assert not broker.store.root.exists()
    assert set(threading.enumerate()) <= threads


SUITE = """
    import socket
    import pytest

    @pytest.mark.parametrize("rocketmq_broker", ["file", "rocksdb"], indirect=True)
    def test_each(rocketmq_broker):
        host, _, port = rocketmq_broker.address.partition(":")
        socket.create_connection((host, int(port))).close()

    def test_files(rocketmq_broker):
        assert "file" in repr(rocketmq_broker.store)
        assert rocketmq_broker.messages("orders") == []
"""


def test_the_fixture_is_there_for_suites_that_name_it(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["cqstore.testing.pytest_plugin"]')
    pytester.makepyfile(SUITE)
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)


def test_other_suites_do_not_import_it() -> None:
    code = (
        "import sys, pytest; pytest.main(['--collect-only', '-q', '-p', 'no:cacheprovider',"
        " '--rootdir', '/', '/dev/null']); print([name for name in sys.modules"
        " if name.startswith('cqstore')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert found.stdout.splitlines()[-1] == "[]"


def test_the_context_manager_needs_neither_pytest_nor_the_command_line() -> None:
    code = (
        "import sys; sys.modules['pytest'] = sys.modules['typer'] = None\n"
        "from cqstore.testing import running_broker\n"
        "with running_broker() as broker: print(broker.port)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert int(found.stdout)


@pytest.mark.quiet
@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_a_broker_is_up_within_300_ms(backend: str) -> None:
    began = time.perf_counter()
    with running_broker(backend=backend) as broker:
        assert isinstance(broker, RunningBroker)
        assert time.perf_counter() - began < 0.3
