"""What the one-call put does not take: the core encodes it, and writes it while others run."""

import itertools
import signal
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.core import SLOW_PATH_ONLY
from store.errors import DiskFullError, StoreError
from store.record.message import Host, Message
from store.service.message_store import MessageStore
from store.service.writing import _encoded
from tests.core.test_plain_puts import CONFIG, NOW, log_bytes, waiting
from tests.interrupts.test_interrupts import IGNORED
from tests.kit.commands import run_module
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.killed_writer import CONFIG as ROOMY
from tests.kit.killed_writer import FIRST, LONG, body_of
from tests.kit.long_way import go_the_long_way
from tests.kit.messages import put

pytestmark = pytest.mark.skipif(SLOW_PATH_ONLY, reason="calls take the slow path")
MAX_BODY, MAX_AT_ONCE, PAGE = 1 << 16, 1 << 20, 4096
BIG = CONFIG.model_copy(
    update={"mapped_file_size_commit_log": 1 << 20, "max_message_size": 300_000}
)
V6 = Host.of("::1", 1)
long_bodies = st.builds(
    lambda size, seed: bytes(itertools.islice(itertools.cycle(bytes([seed, 0, 255])), size)),
    st.sampled_from([0, 1, MAX_BODY - 1, MAX_BODY, MAX_BODY + 1, 131_072, 299_999, 300_001]),
    st.integers(0, 255),
)
big = st.builds(
    Message, st.sampled_from(["t", "u", "%RETRY%" + "r" * 200, "SCHEDULE_TOPIC_XXXX", "a/b"]),
    long_bodies, st.integers(0, 1),
    st.dictionaries(
        st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "__CRC32#"]),
        st.sampled_from(["0", "2", "a b", "é"]), max_size=3,
    ),
    sys_flag=st.sampled_from([0, 1, 4, 8, 12, True]),
    born_timestamp=st.sampled_from([0, 7, None, 1 << 62]),
    born_host=st.sampled_from([V6, Host.of("10.0.0.1", 1)]),
)  # fmt: skip
big_calls = st.lists(
    st.tuples(st.sampled_from(["one", "list", "batch"]), st.lists(big, min_size=1, max_size=5)),
    min_size=1, max_size=4,
)  # fmt: skip


@pytest.fixture
def at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOW * 1_000_000)


@pytest.mark.slow
@pytest.mark.usefixtures("at_one_moment")
@settings(max_examples=25)
@given(calls=big_calls, is_sealed=st.booleans(), is_transient=st.booleans())
def test_long_bodies_are_put_as_python_puts_them(
    calls: list[tuple[str, list[Message]]], *, is_sealed: bool, is_transient: bool
) -> None:
    config = BIG.model_copy(
        update={
            "enabled_append_prop_crc": is_sealed, "transient_store_pool_enable": is_transient
        }
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        short = MessageStore.open(Path(folder, "short"), config, housekeeping=False)
        long = MessageStore.open(Path(folder, "long"), config, housekeeping=False)
        with short, long:
            go_the_long_way(long)
            for way, given_messages in calls:
                assert put(short, way, given_messages) == put(long, way, given_messages)
                assert waiting(short) == waiting(long)
            short.flush()
            long.flush()
            assert log_bytes(short) == log_bytes(long)


@pytest.mark.usefixtures("at_one_moment")
def test_a_list_of_any_length_is_put_as_python_puts_it(tmp_path: Path) -> None:
    """More records than are noted at once, over three files."""
    config = BIG.model_copy(update={"mapped_file_size_commit_log": 1 << 19})
    short = MessageStore.open(tmp_path / "short", config, housekeeping=False)
    long = MessageStore.open(tmp_path / "long", config, housekeeping=False)
    messages = [
        Message("t", b"%d" % at, at % 3, {"KEYS": f"k{at}"} if at % 5 == 0 else {"TAGS": "a"})
        for at in range(11_000)
    ]
    with short, long:
        go_the_long_way(long)
        assert short.put_messages(messages) == long.put_messages(messages)
        assert waiting(short) == waiting(long)
        assert log_bytes(short) == log_bytes(long)
        assert short.commit_log.max_phy_offset() > 2 << 19


def test_numbers_and_hosts_of_other_classes_are_put(tmp_path: Path) -> None:
    class Own(Host):
        __slots__ = ()

    host = Own(b"\x7f\0\0\1\0\0\0\7")
    message = Message("t", b"x", 0, {}, flag=True, store_host=host, reconsume_times=True)
    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as store:
        result = store.put_message(message)
        assert result.store_host is host
        (found,) = store.get_message("t", 0, 0).messages()
        assert (found.head.flag, found.store_host.wire) == (1, host.wire)


def test_where_the_disk_is_full_the_first_of_a_list_are_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, BIG, housekeeping=False) as store:
        store.put_message(Message("t", b""))
        with monkeypatch.context() as patch:

            def full(_: int) -> None:
                raise DiskFullError("no room")

            patch.setattr(store.commit_log.files, "append_file", full)
            done = store.put_messages([Message("t", bytes(299_999)) for _ in range(6)])
        assert [result.ok for result in done] == [True] * 3 + [False] * 3
        assert [result.queue_offset for result in done[:3]] == [1, 2, 3]
        assert store.put_message(Message("t", b"more")).queue_offset == 4
        assert [finding for finding in store.check() if finding.damage] == []


# ---- the core's own part


def test_what_is_called_out_of_turn_is_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as store:
        store.put_message(Message("t", b""))
        putter, log = store._parts.putter, store.commit_log
        assert log.current is not None
        learnt, target = putter._encoder.topics["t"], log.current.target()
        records: Any = putter._plain.encoded()
        before = waiting(store), log_bytes(store)
        assert (len(records), records.next_bytes, records.total_bytes) == (0, 0, 0)
        with pytest.raises(ValueError, match="no record is ready"):
            records.append(target, [])
        assert not records.add(Message("t", b"x", -1), learnt)
        assert not records.add(Message("t", b"x" * (CONFIG.max_message_size + 1)), learnt)
        assert records.add(Message("t", b"x"), learnt)
        with pytest.raises(ValueError, match="no record is ready"):
            records.append(target, [])  # its checksum lacks
        records.sum()
        with pytest.raises(ValueError, match="shorter"):
            records.append(bytearray(100), [])
        with pytest.raises(ValueError, match="not so many"):
            records.skip(2)
        with pytest.raises(BufferError):
            records.append(bytes(CONFIG.mapped_file_size_commit_log), [])
        assert (waiting(store), log_bytes(store)) == before
        records.skip(1)
        assert (len(records), records.next_bytes, records.total_bytes) == (1, 0, 0)
    with pytest.raises(TypeError):
        _encoded.EncodedMessages(None)  # type: ignore[arg-type]


def test_what_a_message_loses_meanwhile_is_held(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, BIG, housekeeping=False) as store:
        putter = store._parts.putter
        records: Any = putter._plain.encoded()
        for at in range(50):
            name = f"{'t' * 40}-{at}"
            message = Message(
                name, b"%d" % at * 1000, at, {"TAGS": f"tag-{at}", "KEYS": f"key-{at}"},
                born_host=Host.of("10.0.0.1", at), store_host=Host.of("::2", at),
            )  # fmt: skip
            assert records.add(message, putter._encoder.learnt(message))
            message.body = message.properties = message.born_host = None  # type: ignore[assignment]
            del message
        putter._encoder.topics.clear()
        results = putter._append.encoded(records, whole=False)
        assert len(results) == 50
        for at in range(50):
            (found,) = store.get_message(f"{'t' * 40}-{at}", at, 0).messages()
            assert found.body == b"%d" % at * 1000
            assert found.properties == {"TAGS": f"tag-{at}", "KEYS": f"key-{at}"}
            assert (found.born_host, found.store_host) == (
                Host.of("10.0.0.1", at), Host.of("::2", at)
            )  # fmt: skip
            assert results[at].store_host == found.store_host
            assert len(store.query_message(f"{'t' * 40}-{at}", f"key-{at}")) == 1


# ---- beside others, and cut short


@pytest.mark.slow
def test_threads_with_long_and_short_bodies_do_not_disturb_each_other(tmp_path: Path) -> None:
    config = BIG.model_copy(update={"mapped_file_size_commit_log": 1 << 22})
    acknowledged: dict[tuple[int, int], bytes] = {}
    failed: list[BaseException] = []
    ended = threading.Event()

    def write(store: MessageStore, number: int) -> None:
        try:
            for turn in range(40):
                size = 40 if number > 1 else MAX_BODY + 1 + turn * 1000
                body = bytes([number, turn]) * (size // 2)
                result = store.put_message(Message("t", body, number % 3))
                acknowledged[number % 3, result.queue_offset] = body
        except BaseException as exc:  # noqa: BLE001 - for the thread that asserts
            failed.append(exc)

    def read(store: MessageStore) -> None:
        try:
            while not ended.is_set():
                for record in store.commit_log.scan(0):
                    assert store.message_by_offset(record.phy_offset).body is not None
        except BaseException as exc:  # noqa: BLE001 - likewise
            failed.append(exc)

    with MessageStore.open(tmp_path, config, housekeeping=False) as store:
        threads = [threading.Thread(target=write, args=(store, number)) for number in range(4)]
        reader = threading.Thread(target=read, args=(store,))
        for thread in (*threads, reader):
            thread.start()
        for thread in threads:
            thread.join()
        ended.set()
        reader.join()
        assert failed == []
        assert len(acknowledged) == 160
        assert {
            key: store.get_message("t", *key, 1).messages()[0].body for key in acknowledged
        } == (acknowledged)
        assert [finding for finding in store.check() if finding.damage] == []


def killed_at(root: Path, page: int, sizes: list[int], end: int) -> list[bytes]:
    """Return the bodies that are there after a kill at a page; whole records end at ``end``."""
    done = run_module("tests.kit.killed_writer", root, page, *sizes)
    assert "Error" not in done.stderr
    assert done.returncode == -signal.SIGSEGV or "AddressSanitizer: SEGV" in done.stderr
    log = Path(root, "commitlog", f"{0:020d}").read_bytes()
    assert log[end : end + 8] == bytes(8)  # size and magic come last
    with MessageStore.open(root, ROOMY, housekeeping=False) as store:
        found = store.get_message("t", 0, 0).messages()
        bodies = [message.body for message in found]
        assert [message.properties for message in found[1:]] == [LONG] * (len(found) - 1)
        assert [finding for finding in store.check() if finding.damage] == []
        assert store.put_message(Message("t", b"more")).queue_offset == len(found)
    return bodies


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [1, 17, 20, *(pytest.param(page, marks=pytest.mark.long) for page in range(0, 61, 3))]
)
def test_a_kill_at_a_page_leaves_the_whole_records_before_it(tmp_path: Path, page: int) -> None:
    sizes = [10, 70_000, 20, 70_000, 70_000]
    empty, properties = 88 + 2 + 2, len("long") + 9000 + 2
    bodies = [FIRST, *(body_of(*each) for each in enumerate(sizes))]
    ends = [
        end + empty * (at + 1) + properties * at
        for at, end in enumerate(itertools.accumulate(map(len, bodies)))
    ]
    whole = 1 + sum(end <= page * PAGE for end in ends[1:])
    assert killed_at(tmp_path, page, sizes, ends[whole - 1]) == bodies[:whole]


def interrupted(root: Path, number: int) -> int:
    """Interrupt a put of a long body at a place; what was acknowledged is there, and whole."""
    body, places = b"long" * 20_000, 0
    with MessageStore.open(root, ROOMY, housekeeping=False) as store:
        assert store.put_message(Message("t", b"first")).ok
        done: list[bool] = []
        with suppress(Interrupted):
            places = run_interrupted(
                lambda: done.append(store.put_message(Message("t", body)).ok), number
            )
        with suppress(StoreError):
            done.append(store.put_message(Message("t", b"then")).ok)
        with suppress(StoreError):
            store.close()
    with MessageStore.open(root, ROOMY, housekeeping=False) as store:
        found = [message.body for message in store.get_message("t", 0, 0).messages()]
        assert found in (
            [b"first", b"then"],
            [b"first", body, b"then"],
            [b"first", body],
            [b"first"],
        )
        assert len(found) >= 1 + len(done)
        assert [finding for finding in store.check() if finding.damage] == []
    return places


@IGNORED
@pytest.mark.slow
@pytest.mark.parametrize("share", [0, pytest.param(1, marks=pytest.mark.long)])
def test_an_interrupted_put_of_a_long_body_loses_nothing(tmp_path: Path, share: int) -> None:
    places = interrupted(tmp_path / "0", 0)
    assert places > 20
    for number in range(1, places + 1, 1 if share else places // 4):
        interrupted(tmp_path / f"{number}", number)
