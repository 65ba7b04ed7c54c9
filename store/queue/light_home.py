"""The backend with the light queues of a combined store: all backends, or only one.

RocketMQ with ``combineCQUseRocksdbForLmq`` keeps them in RocksDB only. The files on disk decide,
and the setting only if they do not show it: if the setting is forgotten, RocketMQ assigns the same
offsets again, and RocksDB drops the units that have them.

Source: RocketMQ ``MultiDispatchUtils.checkMultiDispatchQueue``, ``CombineConsumeQueueStore``.
"""

from collections.abc import Iterable, Sequence

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.journals.lagging_backends import LaggingBackends
from cqstore.store.queue.backend_replica import NO_LIGHT, BackendReplica, Roles
from cqstore.store.queue.reconcile import IsDeleted, missing_units
from cqstore.store.record.message import LMQ_PREFIX

_LOG = StoreLogger(__name__)


def is_light(topic: str) -> bool:
    """Return whether ``topic`` is the name of a light queue."""
    return topic.startswith(LMQ_PREFIX)


def light_home(
    replicas: Sequence[BackendReplica], roles: Roles, lines: LaggingBackends
) -> BackendReplica | None:
    """Return the loaded replica that alone has the light queues, or ``None``.

    The others get no light queues from now on. A lagging or empty replica proves nothing. A replica
    that cannot be opened may have them, and is returned unless it is known not to have them.

    Raises:
        StoreError: a line states that the replica has them, and it cannot be opened.
    """
    home = next((replica for replica in replicas if replica.name == roles.light), None)
    others = [replica for replica in replicas if replica is not home]
    if home is None or not others:
        return None
    noted = any(lines.covers(replica.name) == NO_LIGHT for replica in others)
    if home.failure is None:
        alone = roles.light_alone or noted or (_has_light(home) and _lacks_light(others))
    elif noted:
        raise home.failure
    else:
        alone = not lines.are_alike
    if not alone:
        return None
    return _keep_apart(home, others, roles)


def diverged_replica(
    replicas: Sequence[BackendReplica], roles: Roles, is_deleted: IsDeleted
) -> BackendReplica | None:
    """Return the recovered replica that alone has newer units of light queues, or ``None``.

    All replicas had them before. The others get no light queues from now on.
    """
    home = next((replica for replica in replicas if replica.name == roles.light), None)
    others = [replica for replica in replicas if replica is not home]
    if home is None or not others:
        return None
    lacks = (lack for each in others for lack in missing_units(each, home, is_deleted, LMQ_PREFIX))
    if all(lack.is_head for lack in lacks):
        return None
    return _keep_apart(home, others, roles)


def _keep_apart(
    home: BackendReplica, others: Iterable[BackendReplica], roles: Roles
) -> BackendReplica:
    """Stop giving light queues to the others; return ``home``."""
    if not roles.light_alone:
        _LOG.warning(
            "light queues exist only in the %s backend and stay there, although"
            " combineCQUseRocksdbForLmq is not set", home.name,
        )  # fmt: skip
    for replica in others:
        replica.selection = NO_LIGHT
    home.needed = home.failure is None
    return home


def _has_light(replica: BackendReplica) -> bool:
    return next(replica.store.queues(prefix=LMQ_PREFIX), None) is not None


def _lacks_light(others: Sequence[BackendReplica]) -> bool:
    """Return whether these have queues, but no light queues: those are stored apart."""
    current = [
        replica for replica in others if replica.failure is None and replica.lags_from is None
    ]
    return bool(current) and all(
        next(each.store.queues(), None) is not None and not _has_light(each) for each in current
    )
