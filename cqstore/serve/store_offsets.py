"""StoreOffsets: consumer offsets that clients commit into the store's own table.

Source: RocketMQ ``ConsumerOffsetManager``.
"""

from collections.abc import Iterator

from cqstore.broker.metadata.model import Offsets, readings
from cqstore.embedded.consumer_offsets import ConsumerOffsets
from cqstore.serve.codes import ResponseCode
from cqstore.serve.group_offsets import MAX_COMMITS, Key, check_commit
from cqstore.serve.request import RefusedRequestError


class StoreOffsets:
    """The offsets of all groups of a store that is open for writing. Any thread may read."""

    def __init__(self, offsets: ConsumerOffsets) -> None:
        self._offsets = offsets
        self._added = 0

    def use_stored(self, offsets: Offsets) -> None:
        """Do nothing: the offsets of the store's table are in use already."""

    def committed(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the offset of ``group`` in one queue; ``None``: there is none."""
        return self._offsets.committed(group, topic, queue_id)

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set the offset of ``group`` in one queue, also to a lower one.

        Raises:
            RefusedRequestError: clients have committed offsets in too many queues, or the offset
                is out of range.
            StoreError: the name of the group is invalid.
        """
        check_commit(queue_id, offset)
        is_new = self._offsets.committed(group, topic, queue_id) is None
        if is_new and self._added >= MAX_COMMITS:
            raise RefusedRequestError(
                ResponseCode.SYSTEM_ERROR, f"more than {MAX_COMMITS} offsets were committed"
            )
        self._offsets.assign(group, topic, queue_id, offset)
        self._added += is_new

    def has_group(self, group: str) -> bool:
        """Return whether ``group`` has an offset in any topic."""
        return any(owner == group for _, owner in self._keys())

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which ``group`` has offsets."""
        return {topic for topic, owner in self._keys() if owner == group}

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have offsets in ``topic``."""
        return {group for name, group in self._keys() if name == topic}

    def save(self) -> None:
        """Do nothing: the store's own thread writes the table."""

    def _keys(self) -> Iterator[Key]:
        for name in self._offsets.rows():
            yield from readings(name)
