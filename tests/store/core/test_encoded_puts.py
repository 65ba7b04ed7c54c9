"""What the one-call put does not take: the core encodes it, and writes it while others run."""

import itertools
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqstore.store.errors import DiskFullError, StoreError
from cqstore.store.record.message import Host, Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.writing import _encoded
from tests.kit.compared_puts import CONFIG, core_and_oracle, log_bytes, stop_clock, waiting
from tests.kit.interrupts import IGNORED, Interrupted, run_interrupted
from tests.kit.killed_writer import CONFIG as ROOMY
from tests.kit.messages import put

MAX_BODY = 1 << 16
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
    stop_clock(monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("at_one_moment")
@settings(max_examples=25)
@given(calls=big_calls, is_sealed=st.booleans(), is_transient=st.booleans())
def test_long_bodies_are_put_as_by_the_oracle(
    calls: list[tuple[str, list[Message]]], *, is_sealed: bool, is_transient: bool
) -> None:
    config = BIG.model_copy(
        update={
            "enabled_append_prop_crc": is_sealed, "transient_store_pool_enable": is_transient
        }
    )  # fmt: skip
    with (
        tempfile.TemporaryDirectory() as folder,
        core_and_oracle(Path(folder), config) as (core, oracle),
    ):
        for way, given_messages in calls:
            assert put(core, way, given_messages) == put(oracle, way, given_messages)
            assert waiting(core) == waiting(oracle)
        core.flush()
        oracle.flush()
        assert log_bytes(core) == log_bytes(oracle)


@pytest.mark.usefixtures("at_one_moment")
def test_a_list_of_any_length_is_put_as_by_the_oracle(tmp_path: Path) -> None:
    """More records than are noted at once, over three files."""
    config = BIG.model_copy(update={"mapped_file_size_commit_log": 1 << 19})
    messages = [
        Message("t", b"%d" % at, at % 3, {"KEYS": f"k{at}"} if at % 5 == 0 else {"TAGS": "a"})
        for at in range(11_000)
    ]
    with core_and_oracle(tmp_path, config) as (core, oracle):
        assert core.put_messages(messages) == oracle.put_messages(messages)
        assert waiting(core) == waiting(oracle)
        assert log_bytes(core) == log_bytes(oracle)
        assert core.max_phy_offset() > 2 << 19


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


def test_a_text_of_a_class_of_its_own_is_refused_also_behind_a_plain_one(tmp_path: Path) -> None:
    """It equals that one, and is no property for all that."""

    class Text(str):
        __slots__ = ()

    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as store:
        assert store.put_message(Message("t", b"", 0, {"a": "b"}, flag=True)).ok
        refused = store.put_message(Message("t", b"", 0, {"a": Text("b")}))
        assert not refused.ok
        assert refused.reason == "invalid property 'a' = 'b': name and value must be str"


@pytest.mark.parametrize("odd", ["", "a\x02", "\ud800", 5, None])
def test_an_odd_checksum_of_the_caller_gives_way_to_the_records_own(
    tmp_path: Path, odd: object
) -> None:
    """It is not stored, so nothing can be wrong with it."""
    properties: dict[Any, Any] = {"a": "1", "__CRC32#": odd, "b": "2"}
    config = CONFIG.model_copy(update={"enabled_append_prop_crc": True})
    with core_and_oracle(tmp_path, config) as (core, oracle):
        for _ in range(2):  # the second one finds its slot cached
            message = Message("t", b"x", 0, properties, born_timestamp=1)
            place = core.put_message(message).appended
            assert place is not None
            assert oracle.put_message(message).ok
            stored = components_of(core).log.message(place.phy_offset)
            assert {**stored.properties, "__CRC32#": odd} == {"a": "1", "b": "2", "__CRC32#": odd}
            stored.check_property_crc()


def test_where_the_disk_is_full_the_first_of_a_list_are_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, BIG, housekeeping=False) as store:
        store.put_message(Message("t", b""))
        with monkeypatch.context() as patch:

            def full(_: int) -> None:
                raise DiskFullError("no room")

            patch.setattr(components_of(store).log.files, "append_file", full)
            done = store.put_messages([Message("t", bytes(299_999)) for _ in range(6)])
        assert [result.ok for result in done] == [True] * 3 + [False] * 3
        assert [result.queue_offset for result in done[:3]] == [1, 2, 3]
        assert store.put_message(Message("t", b"more")).queue_offset == 4
        assert [finding for finding in store.check() if finding.damage] == []


# ---- the core's own part


def test_what_is_called_out_of_turn_is_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as store:
        store.put_message(Message("t", b""))
        putter, log = components_of(store).putter, components_of(store).log
        assert log.current is not None
        learnt, target = putter._rules.topics["t"], log.current.target()
        records: Any = putter._fast.encoded()
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
        putter = components_of(store).putter
        records: Any = putter._fast.encoded()
        for at in range(50):
            name = f"{'t' * 40}-{at}"
            message = Message(
                name, b"%d" % at * 1000, at, {"TAGS": f"tag-{at}", "KEYS": f"key-{at}"},
                born_host=Host.of("10.0.0.1", at), store_host=Host.of("::2", at),
            )  # fmt: skip
            assert records.add(message, putter._rules.learnt(message))
            message.body = message.properties = message.born_host = None  # type: ignore[assignment]
            del message
        putter._rules.topics.clear()
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
                for record in components_of(store).log.scan(0):
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
