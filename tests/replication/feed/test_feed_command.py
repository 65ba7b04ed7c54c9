"""``cqstore feed`` as a user meets it: what it serves, prints and refuses."""

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer

from cqstore.replication.address import address
from cqstore.replication.commands.feed import _networks
from cqstore.store.errors import StoreConfigError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.commands import cqstore
from tests.kit.running import COMMAND
from tests.kit.wire_slave import WireSlave
from tests.replication.feed.conftest import CONFIG, log_in

FEED = [*COMMAND[:1], "feed"]
LIMIT_SECONDS = 120


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for number in range(60):
            assert store.put_message(Message("t", b"x" * 150, number % 2)).ok
    return tmp_path / "store"


def run(*words: object, code: int) -> str:
    return cqstore("feed", *words, code=code).stderr


@contextmanager
def running(root: Path, *more: object) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    words = [*FEED, str(root), "--listen", "127.0.0.1:0", "--output", "json", *map(str, more)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"127\.0\.0\.1:(\d+): serving the log from 0 to \d+", line)
            assert found, line
            yield process, int(found[1])
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_store_is_served_until_a_signal(root: Path, number: signal.Signals) -> None:
    before = log_in(root)
    with MessageStore.open(root, read_only=True) as store:
        end = store.max_phy_offset()
    with running(root, "--interval", "0.1") as (process, port):
        with WireSlave(port) as slave:
            slave.report(1)
            assert b"".join(body for _, body in slave.take(end)) == before[1:end]
            slave.report(end)
            assert process.stderr is not None
            while "1 connected: 127.0.0.1 lags by 0 bytes" not in process.stderr.readline():
                pass
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, err
    facts = json.loads(out)
    assert facts.pop("sentBytes") > end
    assert facts == {
        "listened": f"127.0.0.1:{port}", "begin": 0, "end": end, "connections": 1
    }  # fmt: skip
    assert log_in(root) == before
    with MessageStore.open(root) as store:
        assert (store.last_exit_ok, store.report.needed) == (True, False)


@pytest.mark.slow
def test_a_log_in_two_paths_is_served(root: Path, tmp_path: Path) -> None:
    before, folders = log_in(root), [tmp_path / "d1", tmp_path / "d2"]
    with MessageStore.open(root, read_only=True) as store:
        end = store.max_phy_offset()
    for folder in folders:
        folder.mkdir()
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        path.rename(folders[number % 2] / path.name)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={root}\nstorePathCommitLog={folders[0]},{folders[1]}\n")
    with running(root, "--config", conf) as (_, port), WireSlave(port) as slave:
        slave.report(1)
        assert b"".join(body for _, body in slave.take(end)) == before[1:end]


@pytest.mark.slow
def test_nothing_is_served_beyond_this_machine_unless_said_to_whom(root: Path) -> None:
    said = run(root, "--listen", "0.0.0.0:0", code=2)
    assert "other machines can connect to 0.0.0.0" in said
    assert "--allow" in said
    with running(root, "--allow", "10.0.0.0/8") as (_, port), WireSlave(port) as slave:
        assert slave.is_closed()


@pytest.mark.slow
def test_what_cannot_be_fed_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no store here" in run(tmp_path / "empty", "--listen", "127.0.0.1:0", code=2)
    assert [*(tmp_path / "empty").iterdir()] == []
    conf = tmp_path / "broker.conf"
    conf.write_text("listenPort=65535\n")
    assert "cannot listen on port 65536" in run(root, "--config", conf, code=2)
    conf.write_text("haTransferBatchSize=8388608\n")
    assert "haTransferBatchSize" in run(root, "--config", conf, code=2)
    conf.write_text("brokerRole=SLAVE\n")
    assert "it is the store of a slave" in run(
        root, "--config", conf, "--listen", "127.0.0.1:0", code=2
    )
    conf.write_text("brokerRole=SYNC_MASTER\nhaListenPort=1\n")
    with running(root, "--config", conf) as (_, port), WireSlave(port) as slave:
        slave.report(1)
        assert slave.frame()[0] == 1
        assert "open" in run(root, "--listen", "127.0.0.1:0", code=2)  # by another process
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot listen on {where}" in run(root, "--listen", where, code=2)
    assert "--tls-cert" in run(root, "--tls-key", conf, code=2)
    assert "cannot load the certificate and its key" in run(root, "--tls-cert", conf, code=2)


def test_addresses_and_networks_are_read_as_they_are_written() -> None:
    assert address("broker:10912", "it", any_port=True) == ("broker", 10912)
    assert address("[fe80::1]:0", "it", any_port=True) == ("fe80::1", 0)
    wrongs = ["10912", "broker", "broker:", ":1", "fe80::1:1", "b:65536", "b:x", "b:-1", "a..b:1"]
    for wrong in [*wrongs, f"{'a' * 64}.b:1"]:
        with pytest.raises(typer.BadParameter):
            address(wrong, "it", any_port=True)
    assert [str(each) for each in _networks("::1", [])] == ["127.0.0.0/8", "::1/128"]
    assert _networks("localhost", []) == _networks("127.0.0.1", [])
    assert [str(each) for each in _networks("0.0.0.0", ["10.0.0.0/8"])] == ["10.0.0.0/8"]
    for wrong in ("10.0.0.1/8", "x", "10.0.0.0/33"):
        with pytest.raises(typer.BadParameter):
            _networks("127.0.0.1", [wrong])
    for host in ("0.0.0.0", "::", "broker", "10.0.0.1"):
        with pytest.raises(StoreConfigError, match="--allow"):
            _networks(host, [])
