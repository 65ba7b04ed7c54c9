"""StoreCare: what takes away for good, and what is built anew, in an open store.

Source: RocketMQ ``DefaultMessageStore``.
"""

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from store.errors import RefusedStoreError
from store.record.message import SCHEDULE_TOPIC
from store.service.maintenance.clean_service import TOPICS_AT_ONCE, CleanService, ExpiryReport
from store.service.maintenance.file_expiry import FileExpiry
from store.service.recovering.queue_rebuild import QueueRebuild, RebuildReport
from store.service.runtime.running_state import RunningState
from store.service.store_waits import StoreWaits

if TYPE_CHECKING:
    from store.service.scheduling.schedule_message_service import ScheduleMessageService


class StoreCare(StoreWaits):
    """Deletion, expiry and rebuilds; any thread may ask.

    Whatever cuts one of them short fails the store, and the next open goes on with it.
    """

    _state: RunningState
    _clean: CleanService
    _expiry: FileExpiry
    _rebuild: QueueRebuild
    _schedule: "ScheduleMessageService | None"

    def delete_topic(self, topic: str) -> None:
        """Delete one topic, see ``delete_topics``."""
        self.delete_topics([topic])

    def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete the queues of ``topics``, durably, for good: no crash, no replay brings them back.

        Their records stay in the log until they expire. What is put afterwards begins a new life. A
        put into one of them waits until its thousand of topics is deleted; other puts go on. A
        crash leaves whole thousands deleted, those after untouched.

        Raises:
            IllegalMessageError: no queue could have one of the names; nothing was deleted.
            TypeError: one name instead of several, whose letters would be taken for topics.
            RefusedStoreError: delayed messages are delivered from one of them.
            StoreError: as for ``put_message``.
        """
        _require_several(topics)
        names = list(dict.fromkeys(topics))
        for name in names:
            self.queues.check_topic(name)
        if self._schedule is not None and SCHEDULE_TOPIC in names:
            raise RefusedStoreError(
                f"{SCHEDULE_TOPIC} is being delivered from: close the store, and open it without"
                " enableScheduleMessageService"
            )
        self._state.check_writable()
        for first in range(0, len(names), TOPICS_AT_ONCE):
            self._clean.delete_topics(names[first : first + TOPICS_AT_ONCE])

    def clean_unused_topics(self, retain: Collection[str], *, dry_run: bool = True) -> list[str]:
        """Delete the topics with queues that are not in ``retain``, the broker's table of topics.

        Never a light queue or a system topic. Returns them; with ``dry_run`` nothing is deleted.

        Raises:
            TypeError: one name instead of several: all other topics would be deleted.
        """
        _require_several(retain)
        self._ready()
        unused = list(self._clean.unused_topics(frozenset(retain)))
        if not dry_run:
            self.delete_topics(unused)
        return unused

    def delete_expired_files(self, phy_offset: int) -> ExpiryReport:
        """Delete the log files that end at or before ``phy_offset``, never the last one.

        Units and index entries of their records go with them, in part in the background.

        Raises:
            StoreError: as for ``put_message``.
        """
        return self._clean.delete_expired_files(phy_offset)

    def rebuild_queues(
        self,
        topic: str,
        queue_id: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> RebuildReport:
        """Build one queue, or all of ``topic``, anew from the log.

        Twice reads the whole log; the second time nobody can put, and who reads these queues sees
        them grow. An offset that has no record keeps being the next one. ``progress`` is told phy
        offsets of the first time.

        Raises:
            CorruptionError: the log is damaged; nothing was changed.
            RefusedStoreError: the queue has units that the log would not bring back.
            StoreError: as for ``put_message``.
        """
        self._state.locks.check()
        with self._clean.lock.entry():
            self._state.check_writable()
            report = self._rebuild.run(topic, queue_id, progress)
        if self._schedule is not None and topic == SCHEDULE_TOPIC:
            self._schedule.notify_all()
        return report

    def delete_files_manually(self) -> None:
        """Let expired log files go now and in the next looks at them, whatever the hour.

        Source: RocketMQ ``DefaultMessageStore.executeDeleteFilesManually``.
        """
        self._state.check_writable()
        self._expiry.delete_manually()
        self._expiry.run()


def _require_several(topics: Iterable[str]) -> None:
    if isinstance(topics, str | bytes | bytearray):
        raise TypeError(f"{topics!r:.60} is one name, not an iterable of topics")
