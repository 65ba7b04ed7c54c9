"""The store of ``cqstore serve``, opened read-only or for writing."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.one_form import find_one_form, read_one_form
from cqstore.cli.new_store import nothing_half_made
from cqstore.cli.options import (
    check_is_store,
    note,
    note_state,
    open_store,
    pointing_to_check,
    read_config,
)
from cqstore.serve.broker_tables import ReadMetadata
from cqstore.serve.group_offsets import GroupOffsets
from cqstore.serve.limits import ServeLimits
from cqstore.serve.served_broker import ServedBroker
from cqstore.serve.served_store import ServedStore
from cqstore.serve.store_writer import MAX_NEW_TOPICS, StoreWriter, WriteSettings
from cqstore.store.paths import StorePaths
from cqstore.store.service.layout.store_layout import with_log_folder
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.settings.broker_conf import BrokerConf
from cqstore.store.settings.config import StoreConfig

_AUTO_CREATE, _QUEUES = "autoCreateTopicEnable", "defaultTopicQueueNums"
_SCHEDULE = "enableScheduleMessageService"


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Which store is served, and the names that clients see."""

    root: Path
    config: Path | None
    backend: str | None
    commit_log: Path | None
    names: tuple[str, str]
    """Name of the broker, name of the cluster."""
    advertised: str


class OpenedBroker(NamedTuple):
    """The broker to serve, and what the server needs for it."""

    broker: ServedBroker
    read_metadata: ReadMetadata
    limits: ServeLimits
    writer: StoreWriter | None = None


@contextmanager
def opened_to_read(
    place: StorePlace, form: Form | None, offsets: Path | None, limits: ServeLimits
) -> Iterator[OpenedBroker]:
    """Open the store read-only, so that it can be opened again.

    Raises:
        StoreError: the store or the file for offsets cannot be read.
    """
    settings = read_config(place.config, place.root)
    store = open_store(place.root, settings, place.backend, place.commit_log)
    options = OpenOptions(read_only=True, backend=place.backend, housekeeping=False)
    used = with_log_folder(settings, place.commit_log)
    served = ServedStore(store, partial(open_served, MessageStore, place.root, used, options))
    try:
        broker = ServedBroker(served, GroupOffsets(offsets), *place.names, place.advertised)
        read = partial(_metadata, place.root, form, place.config)
        yield OpenedBroker(broker, read, limits)
    finally:
        served.close()


@contextmanager
def opened_to_write(
    place: StorePlace, max_new_topics: int | None, limits: ServeLimits, *, new: bool
) -> Iterator[OpenedBroker]:
    """Open the store for writing; it is flushed and closed at the end.

    Raises:
        StoreError: the store cannot be opened, or there is none and ``new`` is not set.
    """
    config, write = settings_to_write(place.config, place.root, max_new_topics)
    if not new:
        check_is_store(place.root, config, " (use --new to create a store)")
    with nothing_half_made(place.root, config, new=new):
        with pointing_to_check(place.root):
            used = with_log_folder(config, place.commit_log)
            store = open_served(MessageStore, place.root, used, OpenOptions(backend=place.backend))
        with store:
            note_state(store, place.root, read_only=False)
            note(
                f"log files are deleted {config.file_reserved_time} hours after their last write,"
                " as by a broker (fileReservedTime)"
            )
            writer = StoreWriter(store, write)
            try:
                broker = writer.broker(*place.names, place.advertised)
                yield OpenedBroker(broker, writer.metadata, writer.limits(limits), writer)
            finally:
                writer.close()


def settings_to_write(
    path: Path | None, root: Path, max_new_topics: int | None = None, *, is_new: bool = False
) -> tuple[StoreConfig, WriteSettings]:
    """Return the settings of a store, with delays delivered, and what clients may create.

    ``path``: the file with the settings; ``is_new``: see ``read_config``, as for its errors.
    """
    config = read_config(path, root, puts=True, is_new=is_new)
    conf = BrokerConf.read(path) if path is not None else None
    if conf is None or _SCHEDULE not in conf.values:
        config = config.model_copy(update={"enable_schedule_message_service": True})
    given = conf.taken([_AUTO_CREATE, _QUEUES]) if conf is not None else {}
    write = WriteSettings(MAX_NEW_TOPICS if max_new_topics is None else max_new_topics)
    return config, WriteSettings(
        write.max_new_topics, given.get(_AUTO_CREATE, write.creates_topics),
        given.get(_QUEUES, write.default_queues),
    )  # fmt: skip


def _metadata(root: Path, form: Form | None, config: Path | None) -> BrokerMetadata | None:
    """Return the tables of the store; ``None``: it has none, and ``form`` asks for none.

    Raises:
        StoreError: the form does not exist, or there are several and none is selected.
    """
    paths = StorePaths(root)
    if form is None:
        found = find_one_form(paths, form, config)
    else:
        found = read_one_form(paths, form, config)
    for fault in () if found is None else found.faults:
        _note_once(str(fault))
    return found


_note_once = cache(note)
