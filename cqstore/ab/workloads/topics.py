"""Workloads that create and delete topics; all are deleted at the end of a turn."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from cqstore.ab.stores.side_store import SideStore
from cqstore.ab.workloads.base import Setting, Turn, TurnResult, Workload
from cqstore.ab.workloads.timing import run_calls
from cqstore.store.record.message import Message

_TOPIC = "cqstore-ab-{}-{}"
_QUEUES = 8


def _message(topic: str, queue_id: int, setting: Setting) -> Message:
    body = bytes(max(setting.body_bytes, 1))
    return Message(topic, body, queue_id, {"TAGS": "a"}, born_timestamp=1)


def _timed(op: str, topics: Sequence[str], call: Callable[[str], str]) -> TurnResult:
    """Make a call for each topic; return the times and answers."""
    done = TurnResult(operations=len(topics), items=len(topics))
    done.requests = [{"op": op, "topic": topic} for topic in topics]
    calls = [partial(call, topic) for topic in topics]
    answers: list[object] = []
    with done.spent.timed():
        run_calls(calls, answers, done.service)
    done.answers = [str(answer) for answer in answers]
    return done


class TopicCreate(Workload):
    """Creation of a topic by its first message, until the message is in its queue."""

    name = "topic-create"
    what = "Put the first message of a new topic and see it in its queue."
    item = "topics"
    scales: ClassVar[bool] = False
    count: ClassVar[int] = 100
    max_rounds: ClassVar[int] = 8
    passes: ClassVar[int] = 1

    def turn(self, side: SideStore, setting: Setting, turn: Turn) -> TurnResult:
        """Create topics, timed; then delete them all."""
        store = side.store
        topics = [_TOPIC.format(turn.number, at) for at in range(turn.count)]
        messages = {topic: _message(topic, 0, setting) for topic in topics}

        def create(topic: str) -> str:
            result = store.put_message(messages[topic])
            end = store.max_offset(topic, 0)
            return f"{result.status.name}, offset {result.queue_offset}, then max {end}"

        done = _timed("createTopic", topics, create)
        store.delete_topics(topics)
        return done


class TopicDelete(Workload):
    """Durable deletion of a topic with several queues."""

    name = "topic-delete"
    what = f"Delete a topic of {_QUEUES} queues, durably."
    item = "topics"
    scales: ClassVar[bool] = False
    count: ClassVar[int] = 12
    max_rounds: ClassVar[int] = 8
    passes: ClassVar[int] = 1

    def turn(self, side: SideStore, setting: Setting, turn: Turn) -> TurnResult:
        """Put to topics durably, then delete them one after another, timed."""
        store = side.store
        topics = [_TOPIC.format(turn.number, at) for at in range(turn.count)]
        for topic in topics:
            store.put_messages([_message(topic, at % _QUEUES, setting) for at in range(32)])
        store.flush()

        def delete(topic: str) -> str:
            store.delete_topic(topic)
            return "deleted"

        done = _timed("deleteTopic", topics, delete)
        done.answers = [
            f"{answer}, then max {[store.max_offset(topic, at) for at in range(_QUEUES)]}"
            for topic, answer in zip(topics, done.answers, strict=True)
        ]
        return done
