"""Interceptors of reads that installed packages bring, asked for by settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

from cqstore import MessageStore, StoreConfig, StoreConfigError, TagFilter
from cqstore.ab.trace.trace_control import record_trace
from cqstore.store.service.opening.components import StoreComponents
from cqstore.store.service.opening.installed_hooks import INTERCEPTORS
from cqstore.store.service.reading.read_interceptor import QueueQuestion
from tests.kit.hooks import CONFIG, put

if TYPE_CHECKING:
    from cqstore.store.service.runtime.watched_thread import Worker


class Passing:
    """An interceptor that notes each call; it leaves every second read to the store."""

    made: ClassVar[list["Passing"]] = []

    def __init__(self, components: StoreComponents) -> None:
        self.components, self.calls = components, list[str]()
        self.requested = 0
        self.worker: Worker | None = None
        Passing.made.append(self)

    def samples_this(self) -> bool:
        self.requested += 1
        return self.requested % 2 == 1

    def pull(self, topic: str, queue_id: int, *requested: Any) -> Any:
        self.calls.append("pull")
        return self.components.puller.get(topic, queue_id, *requested)

    def number(self, question: QueueQuestion) -> int:
        self.calls.append(question.op)
        if question.op == "estimate":
            return 17
        return question.ask(self.components.queues.queue(question.topic, question.queue_id))

    def on_query(self, *requested: Any) -> None:
        self.calls.append(f"query {requested}")

    def on_list_topics(self, prefix: str) -> None:
        self.calls.append(f"topics {prefix}")

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def snapshot(self) -> object:
        return len(self.calls)


def passing(components: StoreComponents) -> Passing:
    return Passing(components)


def another(components: StoreComponents) -> Passing:
    return Passing(components)


def none(components: StoreComponents) -> None:
    Passing(components)


def broken(_: StoreComponents) -> None:
    raise LookupError("no package is whole")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **entries: str) -> None:
    """Make entry points known to this process: the setting that asks, and a function of here."""
    site = folder / "-".join(["site", *entries.values()])  # the path is what they are kept by
    info = site / "interceptors-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: interceptors\nVersion: 1.0\n")
    lines = [f"{setting} = {__name__}:{name}" for setting, name in entries.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{INTERCEPTORS}]", *lines, ""]))
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(Passing, "made", [])


def config(**changes: Any) -> StoreConfig:
    return CONFIG.model_copy(update=changes)


def ask(store: MessageStore) -> list[object]:
    """Ask everything that is intercepted or observed, once."""
    return [
        store.get_message("t", 0, 0).queue_offsets, store.min_offset("t", 0),
        store.max_offset("t", 0), store.offset_by_time("t", 0, 0),
        store.estimate_message_count("t", 0, 0, 1, TagFilter("a")),
        store.query_message("t", "k", 1, 2, 3), store.query_index_files("t", "k", 4, 5, 6),
        list(store.topics("t")),
    ]  # fmt: skip


def test_an_interceptor_sees_the_reads_of_a_store_from_its_opening_to_its_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, ab_share="passing", ab_shares="passing")
    with MessageStore.open(tmp_path / "s", config()) as store:
        put(store, b"x")
        plain = ask(store)
        assert store.metrics.snapshot().interceptor is None
    assert Passing.made == []
    settings = config(ab_share=0.5, ab_shares="t=1")
    with MessageStore.open(tmp_path / "s", settings) as store:
        (made,) = Passing.made  # though two settings ask for it
        assert ask(store) == [*plain[:4], 17, *plain[5:]]
        observed = ["query ('t', 'k', 1, 2, 3)", "query ('t', 'k', 4, 5, 6)", "topics t"]
        assert made.calls == ["start", "pull", "maxOffset", "estimate", *observed]
        assert store.metrics.snapshot().interceptor == 7
        assert ask(store) == plain
        assert made.calls[7:] == ["minOffset", "timeSearch", *observed]
    assert made.calls[-1] == "stop"
    assert made.calls.count("stop") == 1


def test_a_trace_in_front_of_an_interceptor_leaves_it_all_that_it_would_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, ab_share="passing")
    with MessageStore.open(tmp_path / "s", config(ab_share=0.5)) as store:
        put(store, b"x")
        answers = ask(store)
        (made,) = Passing.made
        calls = made.calls[1:]
        made.requested = 0
        with record_trace(store, tmp_path / "trace"):
            assert ask(store) == answers
        assert made.calls[1 + len(calls) :] == calls
        assert store._interceptor is cast("Any", made)
    assert (tmp_path / "trace").read_text().count('"op"') == 8


def test_a_package_may_leave_a_store_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, ab_share="none")
    with MessageStore.open(tmp_path / "s", config(ab_share=0.5)) as store:
        assert len(Passing.made) == 1
        assert store._interceptor is None


def test_a_store_that_is_opened_to_read_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, ab_share="passing")
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        put(store, b"x")
    with MessageStore.open(tmp_path / "s", config(ab_share=0.5), read_only=True) as store:
        assert store._interceptor is None
    assert Passing.made == []


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"ab_share": "broken"}, r"'ab_share' of cqstore\.interceptors .*LookupError"),
        (
            {"ab_share": "passing", "ab_shares": "another"},
            "one read interceptor, found .*:passing, .*:another",
        ),
    ],
)
def test_what_cannot_be_made_refuses_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: dict[str, str], sentence: str
) -> None:
    install(tmp_path, monkeypatch, **entries)
    with pytest.raises(StoreConfigError, match=sentence):
        MessageStore.open(tmp_path / "s", config(ab_share=0.5, ab_shares="t=1"))
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        put(store, b"x")
        assert store._interceptor is None


def test_a_setting_without_an_entry_point_refuses_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation whose entry points are lost mirrors nothing, and would say nothing."""
    monkeypatch.setattr("cqstore.store.service.opening.installed_hooks.entries", lambda _: ())
    with pytest.raises(StoreConfigError, match="ab_share is set, but no installed package"):
        MessageStore.open(tmp_path / "s", config(ab_share=0.5))
    MessageStore.open(tmp_path / "s", config()).close()
