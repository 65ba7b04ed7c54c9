"""``cqstore follow`` as a user meets it: what it prints, its exit codes, and what a kill leaves."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqstore.replication.address import address
from cqstore.replication.commands import follow_app
from cqstore.replication.commands.follow import _report_start
from cqstore.replication.commands.running_follower import line_of
from cqstore.replication.follow.epoch_protocol import Learner
from cqstore.replication.follow.follower_progress import FollowerProgress
from cqstore.replication.ha_settings import HaSettings
from cqstore.store.errors import StoreConfigError
from cqstore.store.log.log_files import log_file_paths
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.broker_conf import BrokerConf
from tests.kit.commands import cqstore
from tests.kit.log_bytes import log_of
from tests.kit.running import COMMAND
from tests.kit.served import served
from tests.kit.waiting import until
from tests.kit.wire_broker import WireBroker, topic
from tests.kit.wire_master import WireMaster
from tests.kit.wire_server import serving
from tests.replication.conftest import CONFIG, SIZES, Led

FOLLOW = [*COMMAND[:1], "follow"]
FAINT = 0.5
"""Seconds between heartbeats: two of them that are two seconds apart say that nothing is left."""


def words(master: WireMaster | str, root: Path, conf: Path, *more: object) -> list[str]:
    where = master if isinstance(master, str) else f"127.0.0.1:{master.port}"
    return [*FOLLOW, where, str(root), "--config", str(conf), *map(str, more)]


def run(
    master: WireMaster | str, root: Path, conf: Path, *more: object, code: int = 0
) -> subprocess.CompletedProcess[str]:
    return cqstore(*words(master, root, conf, *more)[1:], code=code)


@contextmanager
def running(
    master: WireMaster, root: Path, conf: Path, *more: object
) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        words(master, root, conf, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("backend", backend_names())
def test_a_new_folder_gets_the_last_file_and_is_told_so(
    led: Led, tmp_path: Path, conf: Path, backend: str
) -> None:
    with serving(WireMaster(led.log, heartbeat=FAINT)) as master:
        address = f"127.0.0.1:{master.port}"
        done = run(
            master, tmp_path / "own", conf, "--backend", backend, "--until-quiet", "--output",
            "json",
        )  # fmt: skip
    begin = len(led.log) - len(led.log) % 4096
    assert json.loads(done.stdout) == {
        "master": address, "from": begin, "end": len(led.log),
        "records": sum(start >= begin for start in led.starts), "connections": 1, "caughtUp": True,
    }  # fmt: skip
    assert f"starting with the last log file of {address}" in done.stderr
    assert "connected, requesting the log from 0" in done.stderr
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        assert (store.report.needed, store.last_exit_ok) == (False, True)
        assert log_of(store) == led.log[begin:]
        assert components_of(store).layout.backends == [backend]


@pytest.mark.slow
def test_a_log_in_two_paths_is_written_if_the_settings_name_the_folder(
    led: Led, tmp_path: Path, conf: Path
) -> None:
    own, folders = tmp_path / "own", [tmp_path / "d1", tmp_path / "d2"]
    conf.write_text(
        f"{SIZES}storePathRootDir={own}\nstorePathCommitLog={folders[0]},{folders[1]}\n"
    )
    with_base = run("127.0.0.1:1", own, conf, "--base", led.root, code=2)
    assert f"expected {own}/commitlog" in with_base.stderr
    assert not own.exists()
    first = next(start for start in led.starts if start > 4096)
    for end in (first, len(led.log)):
        with serving(WireMaster(led.log[:end])) as master:
            run(master, own, conf, "--until", end)
    with MessageStore.open(own, BrokerConf.read(conf).settings(own), read_only=True) as store:
        begin = components_of(store).log.min_phy_offset()
        assert log_of(store) == led.log[begin:]
        assert [each for each in store.check() if each.damage] == []
    assert not (own / "commitlog").exists()
    for number, path in enumerate(log_file_paths(folders), begin // 4096):
        assert path.parent == folders[number % 2]
    assert all(map(log_file_paths, ([each] for each in folders)))


@pytest.mark.slow
def test_with_a_broker_the_metadata_is_as_new_as_the_log_when_it_ends(
    led: Led, tmp_path: Path, conf: Path
) -> None:
    broker = WireBroker(topics=2001)
    broker.topics["t"] = topic("t")
    broker.offsets = '{"t@g":{0:3}}'
    with serving(WireMaster(led.log)) as master, serving(broker):
        more = ("--broker", f"127.0.0.1:{broker.port}", "--until", len(led.log))
        run(master, tmp_path / "own", conf, *more)
        config = tmp_path / "own" / "config"
        found = json.loads((config / "topics.json").read_text())["topicConfigTable"]
        assert found == broker.topics
        broker.offsets = '{"t@g":{0:2}}'
        kept = run(master, tmp_path / "own", conf, *more).stderr
        assert "t@g 0: 3 here, 2 at the master" in kept
        taken = run(master, tmp_path / "own", conf, *more, "--accept-lower-offsets").stderr
        assert "replaced by the master's" in taken
    offsets = json.loads((config / "consumerOffset.json").read_text())["offsetTable"]
    assert offsets == {"t@g": {"0": 2}}


@pytest.mark.slow
def test_a_base_is_taken_once(led: Led, tmp_path: Path, conf: Path) -> None:
    more = ("--base", led.root, "--until", len(led.log))
    with serving(WireMaster(led.log)) as master:
        first = run(master, tmp_path / "own", conf, *more)
        again = run(master, tmp_path / "own", conf, *more)
    size = len(led.log) - len(led.log) % 4096
    assert f"copied {size} bytes of log files" in first.stderr
    assert "new log" not in first.stderr
    assert "already has a log, which is continued; --base is ignored" in again.stderr
    assert master.requests[0] == 1
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        assert log_of(store) == led.log


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("backend", backend_names())
def test_a_follower_that_is_killed_goes_on_where_it_was(
    led: Led, tmp_path: Path, conf: Path, backend: str
) -> None:
    root = tmp_path / "own"
    master = WireMaster(led.log[: led.starts[3] + 7], heartbeat=FAINT)
    with serving(master):
        for last in (3, 20, 50):
            with running(master, root, conf, "--backend", backend) as process:
                end = led.starts[last]
                grown = led.log[len(master.log) : end + 7]
                master.loop.call_soon_threadsafe(master.append, grown)
                until(lambda end=end: end in master.reports)  # type: ignore[misc]
                process.kill()
        master.loop.call_soon_threadsafe(master.append, led.log[len(master.log) :])
        run(master, root, conf, "--until", len(led.log))
    assert master.requests[0] == 0
    assert {1} <= {*master.requests[1:]} <= {0, 1}  # 0: what is your last file?
    with MessageStore.open(root, CONFIG) as store:
        assert log_of(store) == led.log
        assert [finding for finding in store.check() if finding.damage] == []
    assert served(root) == served(led.root)


@pytest.mark.slow
def test_what_the_opening_cuts_is_told(led: Led, tmp_path: Path, conf: Path) -> None:
    root = tmp_path / "own"
    with serving(WireMaster(led.log[: led.starts[3]])) as master:
        run(master, root, conf, "--until", led.starts[3])
        (file,) = (root / "commitlog").iterdir()
        with file.open("r+b") as log:
            log.seek(led.starts[3])
            log.write(b"torn")
        (root / "abort").touch()
        output = run(master, root, conf, "--until", led.starts[3]).stderr
    (kept,) = (root / "cqstore" / "cut").iterdir()
    assert f"cut 4 bytes after the end of the log, kept in {kept}" in output


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("waits", [False, True])
def test_a_signal_ends_it_cleanly(
    led: Led, tmp_path: Path, conf: Path, number: signal.Signals, *, waits: bool
) -> None:
    """Who waits for an end gets a code that says that it did not come."""
    more = ["--until", len(led.log) + 1] if waits else []
    log = led.log[:4000]
    with (
        serving(WireMaster(log)) as master,
        running(master, tmp_path / "own", conf, "--interval", "0.1", *more) as process,
    ):
        end = max(start for start in led.starts if start <= 4000)
        until(lambda: end in master.reports)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == (128 + number if waits else 0), err
    assert str(end) in out
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        assert (store.report.needed, store.last_exit_ok) == (False, True)
        assert log_of(store) == log[:end]


@pytest.mark.slow
def test_a_log_that_has_parted_is_a_difference(led: Led, tmp_path: Path, conf: Path) -> None:
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        store.append_to_commit_log(0, led.log[: led.starts[9]])
    with serving(WireMaster(b"\xff" * 5000)) as master:
        done = run(master, tmp_path / "own", conf, code=1)
    assert f"differs from this log, which ends at {led.starts[9]}" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("cqstore: ")
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        assert log_of(store) == led.log[: led.starts[9]]


def refused(tmp_path: Path, conf: Path, place: str, *more: str) -> str:
    """Return why the verb refuses, in this process; it must make no store."""
    given = [place, str(tmp_path / "none"), "--config", str(conf), *more]
    done = CliRunner().invoke(follow_app, given)
    assert done.exception is not None
    assert not (tmp_path / "none" / "commitlog").exists()
    return " ".join(f"{done.output.replace('│', ' ')} {done.exception}".split())


def test_settings_that_cannot_be_followed_with_are_refused(tmp_path: Path, conf: Path) -> None:
    conf.write_text(SIZES + "haHousekeepingInterval=0\n")
    assert "haHousekeepingInterval" in refused(tmp_path, conf, "127.0.0.1:1")
    conf.write_text(SIZES + "haHousekeepingInterval=5000\n")
    reported = refused(tmp_path, conf, "127.0.0.1:1")
    assert (
        "haHousekeepingInterval=5000 must be greater than haSendHeartbeatInterval=5000" in reported
    )
    assert str(conf) in reported
    conf.write_text(SIZES + "haHousekeepingInterval=5000\nhaSendHeartbeatInterval=4999\n")
    assert HaSettings.read(conf).ha_housekeeping_interval == 5000
    conf.write_text(SIZES + "enableControllerMode=true\n")
    assert "a controller elects its master" in refused(tmp_path, conf, "127.0.0.1:1")


def test_no_base_is_copied_for_what_could_not_be_opened(
    led: Led, tmp_path: Path, conf: Path
) -> None:
    base = ("--base", str(led.root))
    assert "no backend 'odd'" in refused(tmp_path, conf, "127.0.0.1:1", *base, "--backend", "odd")
    conf.write_text(f"{SIZES}storePathCommitLog={tmp_path}/elsewhere\n")
    reported = refused(tmp_path, conf, "127.0.0.1:1", *base)
    assert f"storePathCommitLog={tmp_path}/elsewhere" in reported
    assert "in another folder" in reported
    assert f"expected {tmp_path}/none/commitlog or no such key" in reported
    assert (
        f"without the key, and start the broker on the new folder with that copy ({conf})"
        in reported
    )
    conf.write_text(f"{SIZES}storePathCommitLog={tmp_path}/none/commitlog,/b\n")
    assert "none/commitlog,/b: this key" in refused(tmp_path, conf, "127.0.0.1:1", *base)
    conf.write_text(f"{SIZES}queueFilesMax=1\n")
    assert "queueFilesMax" in refused(tmp_path, conf, "127.0.0.1:1", *base)


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    assert address("[::1]:10912") == ("::1", 10912)
    assert address("broker-a:1") == ("broker-a", 1)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["SLAVE", "SYNC_MASTER", "ASYNC_MASTER"])
def test_the_settings_of_a_slave_or_a_master_are_taken(
    led: Led, tmp_path: Path, conf: Path, role: str
) -> None:
    conf.write_text(f"{SIZES}brokerRole={role}\nflushDiskType=SYNC_FLUSH\ninSyncReplicas=2\n")
    with serving(WireMaster(led.log)) as master:
        run(master, tmp_path / "own", conf, "--until", len(led.log))
    begin = len(led.log) - len(led.log) % 4096
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        assert log_of(store) == led.log[begin:]


def test_rocketmqs_keys_of_time_are_read(tmp_path: Path) -> None:
    assert HaSettings.read(None) == HaSettings(
        ha_send_heartbeat_interval=5000, ha_housekeeping_interval=20000
    )
    conf = tmp_path / "broker.conf"
    conf.write_text("haSendHeartbeatInterval = 700\nhaHousekeepingInterval=1000\nother=1\n")
    assert HaSettings.read(conf) == HaSettings(
        ha_send_heartbeat_interval=700, ha_housekeeping_interval=1000
    )
    conf.write_text("haSendHeartbeatInterval=soon\n")
    assert HaSettings.read(conf) == HaSettings.read(None)  # as the broker's
    conf.write_text("haSendHeartbeatInterval=0\n")
    with pytest.raises(StoreConfigError, match="haSendHeartbeatInterval"):
        HaSettings.read(conf)


@pytest.mark.parametrize(
    ("learner", "which"),
    [
        (None, "last log file of m:1; older files are not copied"),
        (Learner(3, sync_from_last_file=True), "last log file of m:1; older files are not copied"),
        (Learner(3), "first log file of m:1"),
    ],
)
def test_where_a_new_log_begins_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], learner: Learner | None, which: str
) -> None:
    root = tmp_path / "own"
    with MessageStore.open(root, CONFIG) as store:
        _report_start(store, root, "m:1", learner)
        reported = capsys.readouterr().err
        assert reported == f"cqstore: {root}: new log, starting with the {which}\n"
        assert store.put_message(Message("t", b"x")).ok
        _report_start(store, root, "m:1", learner)
        assert capsys.readouterr().err == ""


def test_a_line_says_how_far_it_is() -> None:
    progress = FollowerProgress(end=12, connected=True)
    assert line_of(progress, 0, None) == "replicated up to 12"
    assert line_of(progress, 1234567.8, 0.04) == (
        "replicated up to 12, 1,234,568 bytes/s, last record stored 0.0 s ago"
    )
    progress.connected = False
    assert line_of(progress, 0, 70) == (
        "replicated up to 12, 0 bytes/s, last record stored 70.0 s ago; not connected"
    )
    progress.caught_up = True
    assert line_of(progress, 0, 70) == "replicated up to 12: lag 0 bytes"
