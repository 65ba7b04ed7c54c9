"""Messages that change while they are put: what was checked is what is stored, or it is refused."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import Host, Message, SysFlag
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageResult
from cqstore.store.settings.config import FlushDiskType, StoreConfig

SMALL = StoreConfig(mapped_file_size_commit_log=65536, enable_lmq=True, enable_multi_dispatch=True)
CONFIGS = {
    "async": SMALL,
    "sync": SMALL.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH}),
}
HARMLESS = {"A": "b"}
BODY = b"body"
V6 = Host.of("::1", 1)


class Shifting(Message):
    """A message of which one field answers otherwise from one read on."""

    def __init__(self, field: str, other: object, reads: int) -> None:
        super().__init__("t", BODY, 0, dict(HARMLESS))
        self.__dict__.update(field=field, other=other, left=reads)

    def __getattribute__(self, name: str) -> Any:
        state = object.__getattribute__(self, "__dict__")
        if name != state.get("field"):
            return super().__getattribute__(name)
        state["left"] -= 1
        return super().__getattribute__(name) if state["left"] >= 0 else state["other"]


class Growing(dict[str, str]):
    """Properties that have one more from one read on, whatever the read."""

    def __init__(self, other: dict[str, str], reads: int) -> None:
        super().__init__(HARMLESS)
        self.other, self.left = other, reads

    def _read(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.update(self.other)

    def __contains__(self, name: object) -> bool:
        self._read()
        return super().__contains__(name)

    def __getitem__(self, name: str) -> str:
        self._read()
        return super().__getitem__(name)

    def __len__(self) -> int:
        self._read()
        return super().__len__()

    def __iter__(self):  # type: ignore[no-untyped-def]
        self._read()
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        self._read()
        return super().get(name, default)

    def items(self):  # type: ignore[no-untyped-def]
        self._read()
        return super().items()

    def keys(self):  # type: ignore[no-untyped-def]
        self._read()
        return super().keys()


OTHERS: dict[str, tuple[str, object]] = {
    "delayed": ("properties", {"A": "b", "DELAY": "3"}),
    "timer": ("properties", {"A": "b", "TIMER_DELAY_SEC": "3"}),
    "light": ("properties", {"A": "b", "INNER_MULTI_DISPATCH": "%LMQ%x"}),
    "of light": ("properties", {"INNER_MULTI_DISPATCH": "%LMQ%x", "INNER_MULTI_QUEUE_OFFSET": "7"}),
    "inner": ("properties", {"A": "b", "INNER_NUM": "3"}),
    "long": ("properties", {"A": "b" * 40_000}),
    "no wait": ("properties", {"A": "b", "WAIT": "false"}),
    "none": ("properties", None),
    "topic": ("topic", "SCHEDULE_TOPIC_XXXX"),
    "body": ("body", b"x" * 5_000_000),
    "queue": ("queue_id", -1),
    "batch": ("sys_flag", int(SysFlag.INNER_BATCH)),
    "half": ("sys_flag", int(SysFlag.TRANSACTION_PREPARED)),
    "host": ("store_host", V6),
}
Put = Callable[[MessageStore, Message], Sequence[PutMessageResult]]
PUTS: dict[str, Put] = {
    "one": lambda store, message: [store.put_message(message)],
    "async": lambda store, message: [store.put_message_future(message).result(30)],
    "several": lambda store, message: store.put_messages([message]),
}
READS = 14
Fields = tuple[str, bytes, int, dict[str, str], int, Host]


def fields_of(store: MessageStore, done: PutMessageResult) -> Fields:
    """Return what is stored, without what the store itself sets."""
    stored = store.message_by_offset(done.phy_offset)
    properties = dict(stored.properties)
    properties.pop("INNER_MULTI_QUEUE_OFFSET", None)
    flags = stored.sys_flag & ~int(SysFlag.STORE_HOST_V6 | SysFlag.BORN_HOST_V6)
    return stored.topic, stored.body, stored.queue_id, properties, flags, stored.store_host


def forms(root: Path, field: str, other: object) -> list[Fields]:
    """Return what is stored of the message before and after it changes, as far as it may be."""
    found: list[Fields] = []
    with MessageStore.open(root, SMALL) as store:
        for change in ({}, {field: other}):
            message = Message("t", BODY, 0, dict(HARMLESS))
            for name, value in change.items():
                setattr(message, name, value)
            if (done := store.put_message(message)).ok:
                found.append(fields_of(store, done))
    return found


@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize("flush", CONFIGS)
@pytest.mark.parametrize("other", OTHERS)
def test_a_field_that_changes_between_reads_is_stored_as_it_was_checked(
    tmp_path: Path, other: str, flush: str, put: str
) -> None:
    allowed = forms(tmp_path / "apart", *OTHERS[other])
    with MessageStore.open(tmp_path / "store", CONFIGS[flush]) as store:
        stored = []
        for reads in range(READS):
            (done,) = PUTS[put](store, Shifting(*OTHERS[other], reads))
            if done.appended is not None:
                stored.append(fields_of(store, done))
                assert stored[-1] in allowed, reads
        assert allowed[0] in stored
        assert [finding for finding in store.check() if finding.damage] == []


@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize("flush", CONFIGS)
@pytest.mark.parametrize("name", ["delayed", "timer", "light", "of light", "inner", "no wait"])
def test_properties_that_change_between_reads_are_stored_as_they_were_checked(
    tmp_path: Path, name: str, flush: str, put: str
) -> None:
    field, other = OTHERS[name]
    assert isinstance(other, dict)
    allowed = forms(tmp_path / "apart", field, {**HARMLESS, **other})
    with MessageStore.open(tmp_path / "store", CONFIGS[flush]) as store:
        stored = []
        for reads in range(READS):
            (done,) = PUTS[put](store, Message("t", BODY, 0, Growing(other, reads)))
            if done.appended is not None:
                stored.append(fields_of(store, done))
                assert stored[-1] in allowed, reads
        assert stored
        assert [finding for finding in store.check() if finding.damage] == []


BATCHED = {
    "delayed": ("properties", {"DELAY": "3"}),
    "body": ("body", BODY),
    "cut": ("body", encode_client_batch([Message("t", BODY)] * 2)[:-1]),
    "long": ("body", b"x" * 5_000_000),
    "topic": ("topic", "a/b"),
    "half": ("sys_flag", int(SysFlag.TRANSACTION_PREPARED)),
}


@pytest.mark.parametrize("flush", CONFIGS)
@pytest.mark.parametrize("other", BATCHED)
def test_a_client_batch_that_changes_between_reads_is_stored_as_it_was_checked(
    tmp_path: Path, other: str, flush: str
) -> None:
    data = encode_client_batch([Message("t", BODY, 0, dict(HARMLESS))] * 2)
    with MessageStore.open(tmp_path / "store", CONFIGS[flush]) as store:
        puts = 0
        for reads in range(READS):
            batch = Shifting(*BATCHED[other], reads)
            batch.body = data
            done = store.put_client_batch(batch)
            if not done[0].ok:
                assert len(done) == 1
                continue
            puts += 2
            for each in done:
                assert fields_of(store, each)[:5] == ("t", BODY, 0, HARMLESS, 0)
        assert store.max_offset("t", 0) == puts > 0


@pytest.mark.parametrize("other", ["body", "long", "none", "batch"])
def test_a_batch_is_made_of_messages_as_they_were_checked(other: str) -> None:
    whole = encode_client_batch([Message("t", BODY, 0, dict(HARMLESS))])
    field, value = OTHERS[other]
    made = set()
    for reads in range(READS):
        with suppress(IllegalMessageError):
            made.add(encode_client_batch([Shifting(field, value, reads)]))
    changed = Message("t", BODY, 0, dict(HARMLESS))
    setattr(changed, field, value)
    allowed = {whole}
    with suppress(IllegalMessageError):
        allowed.add(encode_client_batch([changed]))
    assert whole in made <= allowed


class Overwritten(bytearray):
    """Bytes that another thread writes into once a part of them was read."""

    def __getitem__(self, at: Any) -> Any:
        part = super().__getitem__(at)
        self[-20:] = b"\xff" * 20
        return part


def test_bytes_of_another_log_that_change_are_appended_as_they_were_checked(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "master", SMALL) as master:
        for _ in range(3):
            assert master.put_message(Message("t", BODY, 0, dict(HARMLESS))).ok
        end = master.max_phy_offset()
    data = next((tmp_path / "master" / "commitlog").iterdir()).read_bytes()[:end]
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        changing: Any = Overwritten(data)
        assert store.append_to_commit_log(0, changing) == end
        assert [finding for finding in store.check() if finding.damage] == []
    assert next((tmp_path / "store" / "commitlog").iterdir()).read_bytes()[:end] == data
