"""Repair of a broker's JSON files from their backups, from another form, or from the queues.

Source: RocketMQ ``ConfigManager.load``, ``MixAll.string2File``.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cqstore.broker.metadata.form_checks import made_by_operators
from cqstore.broker.metadata.form_limits import refuse_unfit
from cqstore.broker.metadata.json_form import fault_of
from cqstore.broker.metadata.json_writer import content_of
from cqstore.broker.metadata.locations import FILES, FILES_OF_TABLE
from cqstore.broker.metadata.model import BrokerMetadata, DataVersion, Form, Table
from cqstore.broker.metadata.replaced_folder import new_kept_folder
from cqstore.broker.metadata.writing import differences_in
from cqstore.store.broker_files.fastjson import encoded
from cqstore.store.broker_files.file_names import (
    MAX_TABLE_BYTES,
    TOPICS_FILE,
    backup_of,
    replace_keeping,
)
from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.files import make_folder, read_file, replace_file
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.service.offline.made_topics import TopicQueues, topic_row

_TABLES = {name: table for table, names in FILES_OF_TABLE.items() for name in names}


class Repair(NamedTuple):
    """One file that a broker cannot read, and its replacement."""

    name: str
    fault: str
    source: str
    """``bak``, a form, or ``queues``; empty: there is no source for a repair."""
    content: bytes


def plan_repairs(
    paths: StorePaths, found: Sequence[BrokerMetadata], queues: Mapping[str, TopicQueues]
) -> Iterator[Repair]:
    """Yield the repair of each unreadable file; changes nothing.

    The first source is the backup, because a broker reads it. The second is the only other form, if
    it has no faults; if there are several forms, one may be outdated. The last source, for topics,
    is the queues. If only the backup is torn, no repair is needed: the next write replaces it.

    Raises:
        RefusedStoreError: it is unknown whether a broker can read a file.
    """
    config = paths.config
    others = [each for each in found if each.form is not Form.JSON]
    if any(each.faults for each in others):
        others = []
    for name in FILES:
        fault = _fault(name, config / name)
        backup = backup_of(config / name)
        if fault == "" or (fault is None and not exists(backup)):
            continue
        fault = fault or "the file is missing, but its backup exists"
        if _fault(name, backup) == "":
            with os_errors("read the backup of the broker's metadata file", backup):
                yield Repair(name, fault, "bak", read_file(backup, MAX_TABLE_BYTES))
        elif len(others) == 1:
            yield Repair(name, fault, others[0].form, _table_of(others[0], name, found))
        elif name == TOPICS_FILE and queues:
            yield Repair(name, fault, "queues", with_made_topics(found, None, queues))
        else:
            yield Repair(name, fault, "", b"")


def with_made_topics(
    found: Sequence[BrokerMetadata],
    base: BrokerMetadata | None,
    queues: Mapping[str, TopicQueues],
) -> bytes:
    """Return ``topics.json`` with the topics of ``base`` and the missing ones from ``queues``.

    Its counter is higher than that of every form in ``found``, so a broker that keeps its topics in
    databases merges the file at its next start.
    """
    topics = {} if base is None else dict(base.topics)
    topics |= {name: topic_row(name, shown) for name, shown in queues.items() if name not in topics}
    made = BrokerMetadata(Form.JSON, Path(TOPICS_FILE), topics=topics)
    made.versions[Table.TOPICS] = next_version(found, Table.TOPICS)
    refuse_unfit(made, Form.JSON)
    return encoded(content_of(TOPICS_FILE, made))


def apply_repairs(paths: StorePaths, repairs: Sequence[Repair]) -> Path | None:
    """Back up each file, then replace it durably; return the folder of the backups.

    The caller has the store's lock. If the process is killed between two files, each file has its
    old or its new content, and the next call repairs the rest.

    Raises:
        StoreIOError: a file cannot be written.
    """
    config, kept = paths.config, None
    for repair in repairs:
        path = config / repair.name
        there = [each for each in (path, backup_of(path)) if exists(each)]
        kept = kept or (new_kept_folder(paths) if there else None)
        with os_errors("repair the broker's metadata file", path):
            make_folder(config)
            if kept is not None:
                _retain(there, kept)
            is_whole = repair.source == "bak"
            replace_keeping(path, repair.content, None if is_whole else repair.content)
    return kept


def base_of_topics(found: Sequence[BrokerMetadata], root: Path) -> BrokerMetadata | None:
    """Return the form whose topics a new ``topics.json`` is based on; ``None`` without a form.

    Raises:
        RefusedStoreError: a broker would not read the file, or the form is damaged.
    """
    forms = {each.form: each for each in found}
    if Form.V2 in forms:
        raise RefusedStoreError(
            "a broker with configManagerVersion=v2 does not read topics.json. Convert to v1 first,"
            " then back (cqstore meta convert)", path=root,
        )  # fmt: skip
    for each in found:
        if each.faults:
            raise RefusedStoreError(
                f"the form {each.form} is damaged: {each.faults[0]} (cqstore meta repair)",
                path=root,
            )
        both = (made_by_operators(form).topics for form in (found[0], each))
        if unlike := list(differences_in("topics", *both)):
            raise RefusedStoreError(
                f"{found[0].form} and {each.form} differ: {unlike[0]}. Keep only the current form"
                " first (cqstore meta convert --from FORM)", path=root,
            )  # fmt: skip
    return found[0] if found else None


def _fault(name: str, path: Path) -> str | None:
    """Return the fault of a file, empty if it is valid; ``None`` if it does not exist."""
    try:
        fault = fault_of(name, path)
    except FileNotFoundError:
        return None
    if isinstance(fault, RefusedStoreError):
        raise fault  # a broker may be able to read it
    return "" if fault is None else str(fault)


def _table_of(other: BrokerMetadata, name: str, found: Sequence[BrokerMetadata]) -> bytes:
    """Return the JSON file ``name`` with the content of another form."""
    made = BrokerMetadata(
        Form.JSON, other.path, topics=other.topics, groups=other.groups,
        forbidden=other.forbidden, offsets=other.offsets,
    )  # fmt: skip
    table = _TABLES[name]
    made.versions[table] = next_version(found, table)
    refuse_unfit(made, Form.JSON)
    return encoded(content_of(name, made))


def next_version(found: Sequence[BrokerMetadata], table: Table) -> DataVersion:
    """Return a version above that of every form, because a broker uses the highest counter."""
    known = [each.versions[table] for each in found if table in each.versions]
    state = max((version.state_version for version in known), default=0)
    counter = max((version.counter for version in known), default=0)
    return DataVersion(state, time.time_ns() // 1_000_000, counter + 1)


def _retain(files: Sequence[Path], kept: Path) -> None:
    make_folder(kept)
    for path in files:
        replace_file(kept / path.name, read_file(path, MAX_TABLE_BYTES))
