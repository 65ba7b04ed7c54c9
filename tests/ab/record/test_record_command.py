"""``cqstore ab record`` as a user meets it: its output, its exit codes, and what Ctrl-C leaves."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from cqstore.ab.trace.operations import read_trace
from cqstore.store.service.message_store import MessageStore
from tests.ab.record.conftest import put
from tests.kit import commands
from tests.kit.log_bytes import log_of
from tests.kit.waiting import until
from tests.kit.wire_broker import WireBroker
from tests.kit.wire_master import WireMaster
from tests.kit.wire_server import serving


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_complete_file(
    tmp_path: Path, store: MessageStore, number: signal.Signals
) -> None:
    path, broker = tmp_path / "trace.jsonl", WireBroker()
    broker.offsets = '{"orders@billing":{0:3}}'
    with serving(WireMaster(log_of(store))) as master, serving(broker):
        words = [f"127.0.0.1:{master.port}", str(path), "--broker", f"127.0.0.1:{broker.port}"]
        process = subprocess.Popen(
            [*commands.COMMAND, "ab", "record", *words, "--poll", "0.1", "--output", "json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        with process:
            until(lambda: len(master.requests) == 2)
            put(store, 4, 90)
            more = log_of(store)[len(master.log) :]
            master.loop.call_soon_threadsafe(master.append, more)
            until(lambda: path.exists() and path.read_bytes().count(b'"op":"put"') == 4)
            process.send_signal(number)
            stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number, stderr
    found = json.loads(stdout)
    assert found == {
        "trace": str(path), "puts": 4, "pulls": 0, "bytes": path.stat().st_size,
    }  # fmt: skip
    (missing,) = read_trace(path).missing
    assert missing.startswith("The recording was stopped after ")
    assert f"cqstore: {missing}\n" in stderr
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_a_recording_that_has_all_ends_with_zero(tmp_path: Path, store: MessageStore) -> None:
    path = tmp_path / "trace.jsonl"
    with serving(WireMaster(log_of(store), heartbeat=2.1)) as master:
        where = f"127.0.0.1:{master.port}"
        done = commands.cqstore("ab", "record", where, path, "--for", "0.1s")
        assert "without --broker, only puts are recorded" in done.stderr
        again = commands.cqstore("ab", "record", where, path, code=2)
        assert f"the file already exists ({path})" in again.stderr
        inside = commands.cqstore("ab", "record", where, store.root / "trace", code=2)
        assert "inside" in inside.stderr
    assert path.read_bytes().count(b"\n") == 2
