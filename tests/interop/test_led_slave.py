"""A slave broker of RocketMQ's follows ``cqstore feed``, whatever its name server answers."""

import os
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.interop.brokers import Broker, Brokers
from tests.interop.test_following import file_bytes
from tests.kit.running import COMMAND
from tests.kit.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.long]
SIZE = 1 << 20
SIZES = {"mappedFileSizeCommitLog": SIZE, "mappedFileSizeConsumeQueue": 20_000}
LIMIT_SECONDS = 120


def free_port() -> int:
    """As ``Ports.java``: for a server that starts later, and other programs run meanwhile."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    first = 10_000 + worker % 8 * 2_700
    while True:
        port = random.randrange(first + 2, first + 2_700)
        with (
            suppress(OSError),
            socket.create_server(("127.0.0.1", port)),
            socket.create_server(("127.0.0.1", port - 2)),  # which a broker takes too
        ):
            return port


def filled(root: Path, count: int) -> int:
    """A store with so many messages; return the end of its log."""
    with MessageStore.open(root, StoreConfig(mapped_file_size_commit_log=SIZE)) as store:
        for number in range(count):
            assert store.put_message(Message("t", b"x" * 1000, number % 4)).ok
        return store.max_phy_offset()


@contextmanager
def fed(root: Path, port: int, slave: int) -> Iterator["subprocess.Popen[str]"]:
    """Run the command as the documentation has it."""
    conf = root.with_suffix(".conf")
    conf.write_text(f"mappedFileSizeCommitLog={SIZE}\n")
    words = ["--listen", f"127.0.0.1:{port}", "--slave", f"127.0.0.1:{slave}"]
    with subprocess.Popen(
        [*COMMAND[:1], "feed", str(root), "--config", str(conf), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def copy_closed_files(root: Path, into: Path, end: int) -> None:
    """Copy the log but for its last file."""
    (into / "commitlog").mkdir(parents=True)
    for path in (root / "commitlog").iterdir():
        if int(path.name) + SIZE <= end:
            shutil.copy(path, into / "commitlog")


def whole(broker: Broker, end: int) -> None:
    until(lambda: broker.do("end")["end"] == end)


def registered(slave: Broker) -> dict[str, object]:
    """Register it until the name server names a master, as it does not each time; what it says."""
    answer: dict[str, object] = {}

    def names_a_master() -> bool:
        answer.clear()
        answer.update(slave.do("register"))
        return "master" in answer

    until(names_a_master)
    return answer


def test_a_slave_is_led_to_a_feed_and_no_name_server_leads_it_away(
    tmp_path: Path, brokers: Brokers
) -> None:
    own, feed_port, slave_port = tmp_path / "own", free_port(), free_port()
    end = filled(own, 3000)
    feed = f"127.0.0.1:{feed_port}"
    with brokers.name_server() as names:
        common = {**SIZES, "namesrvAddr": f"127.0.0.1:{names}", "brokerIP2": "127.0.0.1"}
        role = {**common, "brokerRole": "SLAVE", "brokerId": 1, "listenPort": slave_port}
        with brokers.running(tmp_path / "theirs", **common) as master:
            theirs = {"master": f"127.0.0.1:{master.port}"}
            master.do("register")
            with brokers.running(tmp_path / "astray", **role) as slave:
                # Without haMasterAddress the name server leads it to the master that it knows.
                led = {**theirs, "haMaster": f"127.0.0.1:{master.ha_port}"}
                assert registered(slave) == led
            role["haMasterAddress"] = feed
            with brokers.running(tmp_path / "first", **role) as slave:
                # With it, it follows no master: neither that address nor the name server's.
                assert registered(slave) == theirs
                with fed(own, feed_port, slave_port) as process:
                    whole(slave, end)
                    assert registered(slave) == {**theirs, "haMaster": feed}
                    slave.close()
                    copy_closed_files(own, tmp_path / "second", end)
                    with brokers.running(tmp_path / "second", **role) as other:
                        whole(other, end)  # a broker forgets the address, and is given it again
                    process.send_signal(signal.SIGTERM)
                    _, err = process.communicate(timeout=LIMIT_SECONDS)
                    assert process.returncode == 0, err
                    assert f"slave 127.0.0.1:{slave_port}: directed to {feed}" in err
            assert master.do("end")["end"] == 0  # nothing was written to it meanwhile
    begin = end - end % SIZE  # an empty slave begins with the last file
    assert begin > 0
    assert file_bytes(tmp_path / "first", begin, end) == file_bytes(own, begin, end)
    assert file_bytes(tmp_path / "second", 0, end) == file_bytes(own, 0, end)


def test_a_master_is_told_from_a_slave(tmp_path: Path, brokers: Brokers) -> None:
    own, feed_port, master_port = tmp_path / "own", free_port(), free_port()
    filled(own, 10)
    with (
        brokers.running(tmp_path / "theirs", **SIZES, listenPort=master_port),
        fed(own, feed_port, master_port) as process,
    ):
        assert process.stderr is not None
        line = process.stderr.readline()
        while "cannot be directed to this feed: it is a master" not in line:
            assert line
            line = process.stderr.readline()
