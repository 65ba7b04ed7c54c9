"""The store that an export creates: a new folder with the selected messages."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cqstore.cli.message_files.export_file import refuse_existing
from cqstore.cli.message_files.message_fields import ReadMessage, to_put
from cqstore.cli.message_files.text_files import MessageWriter
from cqstore.cli.options import note
from cqstore.store.broker_files.known_topics import topic_table
from cqstore.store.errors import IllegalMessageError, RefusedStoreError, StoreError, os_errors
from cqstore.store.files import sync_folder
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.made_topics import (
    topic_row,
    topics_of_spans,
    with_queue_type,
    write_topics,
)
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions, StoreHooks
from cqstore.store.settings.config import FlushDiskType

_LIST = 256


class StoreWriter(MessageWriter):
    """Appends messages to a store in batches."""

    def __init__(self, store: MessageStore) -> None:
        """Append to the open ``store``."""
        self._store = store
        self._waiting = list[Message]()
        self._places = list[str]()

    def write(self, read: ReadMessage) -> None:
        """Collect a message; every ``_LIST`` messages are appended at once.

        Raises:
            IllegalMessageError: this or an earlier message cannot be appended; the error names it.
        """
        message = read.message
        self._places.append(f"{message.topic}, queue {read.queue_id}, offset {read.queue_offset}")
        self._waiting.append(to_put(message))
        if len(self._waiting) == _LIST:
            self.finish()

    def finish(self) -> None:
        """Append the collected messages; they are durable once the store is closed.

        Raises:
            IllegalMessageError: the new store refuses a message.
            StoreError: the new store cannot be written.
        """
        results = self._store.put_messages(self._waiting)
        for place, result in zip(self._places, results, strict=True):
            if not result.ok:
                raise IllegalMessageError(
                    f"cannot append {place} to the store: {result.status.name}, {result.reason}"
                )
        self._waiting, self._places = [], []


@contextmanager
def new_store(target: Path, source: MessageStore) -> Iterator[MessageStore]:
    """Yield a new store with the backend and file sizes of ``source``; rename it on success.

    Its folder is ``NAME.part``, which is renamed to ``target`` when the block succeeds and removed
    when it fails. The store has a ``topics.json``, which a broker needs to serve it. Each topic is
    taken from the metadata of ``source``, or else derived from its queues.

    Raises:
        RefusedStoreError: ``target`` or an unfinished export exists.
        StoreIOError: the store cannot be written.
    """
    refuse_existing(target)
    part = target.with_name(f"{target.name}.part")
    if os.path.lexists(part):
        raise RefusedStoreError("found an unfinished export: remove it", path=part)
    config = source.config.without_replicas().model_copy(
        update={
            "flush_disk_type": FlushDiskType.ASYNC_FLUSH,
            "store_path_commit_log": None,
            "max_message_size": source.config.mapped_file_size_commit_log,
            "rocksdb_cq_double_write_enable": False,
        }
    )
    backend = next(iter(components_of(source).queues.backends())).name
    whole = False
    try:
        options = OpenOptions(
            backend=backend, housekeeping=False, hooks=StoreHooks(installed=False)
        )
        with open_served(MessageStore, part, config, options) as store:
            yield store
            _write_topics(store, source)
        refuse_existing(target)
        with os_errors("rename the store", target):
            part.rename(target)
            whole = True
            sync_folder(target.parent)
    finally:
        if not whole:
            shutil.rmtree(part, ignore_errors=True)


def _write_topics(store: MessageStore, source: MessageStore) -> None:
    try:
        known = topic_table(components_of(source).paths.config)
    except StoreError as exc:
        note(f"the topics of the new store are created from its queues: {exc}")
        known = None
    rows = {} if known is None else known.topics
    shown = topics_of_spans(store.queue_spans())
    for topic, each in shown.items():
        each.queue_type = components_of(store).queues.queue_type(topic)
    made = {
        topic: with_queue_type(rows.get(topic) or topic_row(topic, each), each)
        for topic, each in shown.items()
    }
    write_topics(components_of(store).paths.topics, made)
