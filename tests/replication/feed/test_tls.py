"""TLS between our own: a follower that knows its master, a master that knows its followers."""

import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.follow.follower import Follower
from cqstore.replication.tls import follower_context, master_context
from cqstore.store.errors import StoreConfigError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageStatus
from tests.kit.log_bytes import log_of
from tests.kit.running import COMMAND
from tests.kit.waiting import run, until
from tests.kit.wire_slave import WireSlave
from tests.replication.conftest import SIZES
from tests.replication.feed.conftest import CONFIG, QUICK, Master, leading
from tests.replication.feed.test_feed_command import running
from tests.replication.feed.test_followed import FAST
from tests.replication.feed.test_sync_master import PATIENT, sync

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Keys:
    """Files of one authority and of what it has signed."""

    ca: Path
    master: Path
    follower: Path
    other_ca: Path


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("keys")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    for name in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("master", "follower"):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout",
                f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days",
                "2", "-CAcreateserial", "-extfile", "names", "-out", f"{name}.crt")  # fmt: skip
        whole = (folder / f"{name}.crt").read_text() + (folder / f"{name}.key").read_text()
        (folder / f"{name}.pem").write_text(whole)
    return Keys(*(folder / f"{name}.pem" for name in ("ca", "master", "follower", "other")))


async def followed(master: Master, own: Path, ca: Path, cert: Path | None) -> bytes:
    """Follow to the master's end; return the log, or nothing if the first connection failed."""
    reported: list[str] = []
    with MessageStore.open(own, CONFIG, housekeeping=False) as store:
        follower = Follower(
            store, "127.0.0.1", master.port, timing=FAST, tls=follower_context(ca, cert),
            on_event=reported.append,
        )  # fmt: skip
        await follower.run(
            lambda progress: (
                progress.end == master.end or any("retrying" in sentence for sentence in reported)
            )
        )
        return log_of(store) if store.max_phy_offset() else b""


def test_both_ends_know_each_other(keys: Keys, tmp_path: Path) -> None:
    tls = master_context(keys.master, None, keys.ca)
    with leading(tmp_path / "master", settings=QUICK, count=60, tls=tls) as master:
        begin = master.end - master.end % 4096
        good = run(followed(master, tmp_path / "own", keys.ca, keys.follower))
        assert good == master.log[begin:]
        assert run(followed(master, tmp_path / "a", keys.other_ca, keys.follower)) == b""
        assert run(followed(master, tmp_path / "b", keys.ca, None)) == b""
        with WireSlave(master.port) as slave:  # as RocketMQ's does
            slave.report(0)
            assert slave.is_closed()
        until(lambda: not master.feeder.followers.links())


def test_a_put_waits_for_a_follower_over_tls(keys: Keys, tmp_path: Path) -> None:
    """Only the loop sends and receives there."""
    tls = master_context(keys.master, None, None)
    with leading(tmp_path / "m", sync(**PATIENT), tls=tls) as master:
        answers = [master.store.put_message_future(Message("t", b"x", 0)) for _ in range(20)]
        with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as own:
            follower = Follower(
                own, "127.0.0.1", master.port, timing=FAST, tls=follower_context(keys.ca, None)
            )
            run(follower.run(lambda _: all(answer.done() for answer in answers)))
        assert {answer.result(60).status for answer in answers} == {PutMessageStatus.PUT_OK}


def test_who_says_nothing_is_closed(keys: Keys, tmp_path: Path) -> None:
    tls = master_context(keys.master, None, keys.ca)
    settings = FeedSettings(ha_housekeeping_interval=1000)
    with leading(tmp_path / "master", settings=settings, tls=tls) as master:
        with WireSlave(master.port) as silent:
            assert silent.is_closed()
        until(lambda: not master.feeder.followers.links())


def test_who_is_not_allowed_shakes_no_hands(keys: Keys, tmp_path: Path) -> None:
    tls = master_context(keys.master, None, None)
    with (
        leading(tmp_path / "master", settings=QUICK, tls=tls, max_connections=1) as master,
        WireSlave(master.port),
    ):
        until(lambda: len(master.feeder.followers.links()) == 1)
        with socket.create_connection(("127.0.0.1", master.port), timeout=30) as peer:
            assert peer.recv(1) == b""  # though the first one still shakes


def test_the_commands_speak_it(keys: Keys, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for _ in range(3):
            store.put_message(Message("t", b"x", 0))
        log = log_of(store)
    conf = tmp_path / "conf"
    conf.write_text(SIZES + "haSendHeartbeatInterval=100\n")
    cert = ("--tls-cert", keys.master, "--tls-client-ca", keys.ca)
    with running(tmp_path / "store", *cert, "--config", conf) as (_, port):
        words = [
            COMMAND[0], "follow", f"127.0.0.1:{port}", tmp_path / "own", "--config", conf,
            "--until", len(log), "--tls-ca", keys.ca, "--tls-cert", keys.follower,
        ]  # fmt: skip
        done = subprocess.run(
            [*map(str, words)], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
    with MessageStore.open(tmp_path / "own", CONFIG, read_only=True) as store:
        assert log_of(store) == log


def test_files_that_are_no_keys_are_named(keys: Keys, tmp_path: Path) -> None:
    none = tmp_path / "none.pem"
    for path in (none, keys.ca):  # not there; no key in it
        with pytest.raises(
            StoreConfigError, match="cannot load the certificate and its key"
        ) as caught:
            master_context(path, None, None)
        assert caught.value.path == path
    none.write_text("no certificate")
    with pytest.raises(StoreConfigError, match="cannot load the CA certificate"):
        follower_context(none, None)
    with pytest.raises(StoreConfigError, match="cannot load the CA certificate"):
        master_context(keys.master, None, none)
