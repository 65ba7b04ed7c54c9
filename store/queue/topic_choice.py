"""Topics that a move did not take to the new backend, as the store's record has them.

``BackendState.choice`` has two forms: all topics but BatchCQ topics that stay in files unserved
(``!T1;T2``), and the light queues alone (``%LMQ%*``), with the other topics in files. RocketMQ
serves no other division: ``CombineConsumeQueueStore`` reads all topics from one backend, and only
light queues from RocksDB (``combineCQUseRocksdbForLmq``).
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from cqstore.store.errors import IllegalMessageError
from cqstore.store.queue.backend_replica import NO_LIGHT, BackendReplica, Roles
from cqstore.store.record.message import LMQ_PREFIX

ONLY_LIGHT = f"{LMQ_PREFIX}*"
"""Selection of a backend that has the light queues and nothing else."""


def all_but(topics: Collection[str]) -> str:
    """Return the selection of all topics but these, none of which contains ``;`` or ends in ``*``.

    ``topics`` is not empty.
    """
    return "!" + ";".join(sorted(topics))


def left_topics(choice: Mapping[str, str]) -> frozenset[str]:
    """Return the topics that a move left in files, where a broker with RocksDB has no queues."""
    without = [each for each in choice.values() if each.startswith("!") and each != NO_LIGHT]
    return frozenset(topic for each in without for topic in each[1:].split(";"))


def is_left(topic: str) -> str:
    """Return the sentence about a topic that was left, and how to have it served again."""
    return (
        f"topic {topic!r} is not served: the move left its queues in files (migrate plan --leave)."
        " Run cqstore migrate rollback to serve it again"
    )


def takers(
    replicas: Sequence[BackendReplica], topic: str, left: Container[str]
) -> list[BackendReplica]:
    """Return the replicas that get units of ``topic``; ``left``: topics that stay in files.

    Raises:
        IllegalMessageError: it is one of ``left``, and the files are not in use.
    """
    found = [replica for replica in replicas if replica.accepts(topic)]
    if not found and topic in left:
        raise IllegalMessageError(is_left(topic))
    return found


def takes_batches(replicas: Iterable[BackendReplica], topic: str) -> bool:
    """Return whether a replica that gets units of ``topic`` has batch queues for it."""
    return any(each.store.takes_batches(topic) for each in replicas if each.accepts(topic))


def is_whole(choice: Mapping[str, str], name: str, given: str | None) -> bool:
    """Return whether backend ``name``, which has the topics ``given``, has all that are served."""
    return given is None or (given == choice.get(name) and given.startswith("!"))


def roles_of(
    choice: Mapping[str, str], read: str, assign: str, light: str | None = None
) -> Roles | None:
    """Return the roles of backends to which a move gave topics; ``None`` if it gave them all.

    ``light``: the backend that has the light queues alone if the files on disk show it.
    """
    if not choice:
        return None
    home = next((name for name, given in choice.items() if given == ONLY_LIGHT), None)
    apart = home is not None and NO_LIGHT in choice.values()
    selections = {name: given for name, given in choice.items() if given != NO_LIGHT}
    light = light if home is None else home if apart else None
    return Roles(read, assign, light, apart, selections, left_topics(choice))
