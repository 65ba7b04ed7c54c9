"""Which topics a plan moves: all of them, all but some BatchCQ topics, or the light queues alone.

RocketMQ serves no other division of a store between files and RocksDB. With
``storeType=defaultRocksDB`` it reads only RocksDB. With double write it reads all ordinary topics
from one backend (``combineCQPreferCQType``), and light queues from RocksDB if
``combineCQUseRocksdbForLmq`` is set (5.5.0 and later); it does not start if there is a BatchCQ
topic. ``rocksdbCQSelectiveDoubleWriteEnable`` (5.5.1) only leaves topics out of RocksDB.

Source: RocketMQ ``RocksDBMessageStore``, ``CombineConsumeQueueStore``, ``BatchConsumeQueue``.
"""

from collections.abc import Mapping, Sequence

from cqstore.store.errors import RefusedStoreError
from cqstore.store.queue.backends import only_as_files, topics_only_as_files
from cqstore.store.queue.topic_choice import ONLY_LIGHT, all_but
from cqstore.store.record.message import LMQ_PREFIX
from cqstore.store.sentences import some_of
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.installed_backends import taking_a_share

_NAMED = 5


def choose_topics(
    store: MessageStore, target: str, topics: Sequence[str] = (), leave: Sequence[str] = ()
) -> str | None:
    """Return the selection of the topics to move to ``target``; ``None``: all of them.

    ``topics``: selections as in ``doubleWriteTopics``; ``leave``: BatchCQ topics to leave in files.

    Raises:
        RefusedStoreError: no broker serves the result, or a topic to leave does not exist.
    """
    wanted = {each for text in topics for each in text.split(";") if each}
    if choice := components_of(store).layout.backend_state.choice:
        raise RefusedStoreError(
            f"an earlier move took only some topics ({_sentence(choice)}): the others cannot be"
            " moved from there. Roll that move back first (cqstore migrate rollback)",
            path=store.root,
        )
    if wanted:
        return _only_light(store, target, wanted, leave)
    paths = components_of(store).paths
    if leave:
        _refuse_to_leave(store, target, leave)
    if (refusal := only_as_files(paths, [target], left={*leave})) is not None:
        raise refusal
    return all_but({*leave}) if leave else None


def _sentence(choice: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {topics!r}" for name, topics in sorted(choice.items()))


def _only_light(store: MessageStore, target: str, wanted: set[str], leave: Sequence[str]) -> str:
    """Return the selection of the light queues, the only one that a broker serves.

    Raises:
        RefusedStoreError: ``wanted`` is another one, or the light queues cannot be moved alone.
    """
    root = store.root
    if wanted != {ONLY_LIGHT}:
        raise RefusedStoreError(
            f"cannot move only the topics {';'.join(sorted(wanted))!r}: a broker reads all topics"
            " from one backend (storeType, combineCQPreferCQType); only the light queues"
            f" ({ONLY_LIGHT}), all together, can be in RocksDB while the other topics are in files"
            " (combineCQUseRocksdbForLmq, RocketMQ 5.5.0 and later). Pass --topics"
            f" '{ONLY_LIGHT}', or leave out --topics to move all topics",
            path=root,
        )
    if taking_a_share([target]) is None:
        raise RefusedStoreError(
            f"cannot move only the light queues to {target}: a broker that reads the other topics"
            " from RocksDB reads the light queues from RocksDB too. Leave out --topics",
            path=root,
        )
    if batch := topics_only_as_files(components_of(store).paths):
        named = some_of([repr(each) for each in batch[:_NAMED]], len(batch))
        raise RefusedStoreError(
            "cannot move only the light queues: a broker reads them from RocksDB only with double"
            f" write, and with double write it does not start if there are BatchCQ topics: {named}",
            path=root,
        )
    if leave:
        raise RefusedStoreError(
            "--leave cannot be combined with --topics: topics that are not selected stay in files,"
            " and a broker serves them from there",
            path=root,
        )
    if next(components_of(store).queues.queues(prefix=LMQ_PREFIX), None) is None:
        raise RefusedStoreError(f"no light queues ({ONLY_LIGHT}) in this store", path=root)
    return ONLY_LIGHT


def _refuse_to_leave(store: MessageStore, target: str, leave: Sequence[str]) -> None:
    """Refuse to leave topics that a broker would serve after the move.

    Raises:
        RefusedStoreError: one is not a BatchCQ topic, or ``target`` can hold it.
    """
    batch = topics_only_as_files(components_of(store).paths)
    others = [repr(each) for each in leave if each not in batch]
    if not others and taking_a_share([target]) is not None:
        return
    if not others:
        raise RefusedStoreError(
            f"--leave: {target} queues can hold BatchCQ topics", path=store.root
        )
    known = some_of([repr(each) for each in batch[:_NAMED]], len(batch)) or "none"
    raise RefusedStoreError(
        f"cannot leave {some_of(others[:_NAMED], len(others))} in files: only BatchCQ topics can be"
        f" left (this store has: {known}). A broker with RocksDB would start every other topic"
        " again without its messages, so all of them are moved",
        path=store.root,
    )
