"""Plan: the queues to move, divided into segments, and checksums of their source.

It consists of two readable files: ``plan.json``, and ``queues.jsonl`` with one line for each slice
of a queue, in key order. A segment is a range of lines and the work of one task.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from cqstore.migration.markers import read_versioned
from cqstore.migration.workspace import Workspace, write_file
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreError, os_errors
from cqstore.store.files import reading
from cqstore.store.path_kind import exists
from cqstore.store.queue.topic_choice import ONLY_LIGHT, left_topics
from cqstore.store.queue.units import MAX_UNITS, QueueKey
from cqstore.store.settings.config import StoreConfig

FORMAT = 1
"""Version of the plan's files."""
PLAN_AGAIN = "make a new plan (cqstore migrate rollback, then cqstore migrate plan)"
"""End of an error about a plan that no longer fits its store."""
_SHOWN_BY_FILES = frozenset({
    "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "rocksdbMemoryBytes",
})  # fmt: skip
"""Keys of settings that the planner replaces with the values it found."""


class Slice(NamedTuple):
    """Units of one queue that one task moves."""

    queue: QueueKey
    begin: int
    """Queue offset of the first unit."""
    end: int
    """Queue offset after the last unit."""
    next_offset: int | None
    """Next queue offset of the queue, if this is its last slice."""
    checksum: int
    """CRC-32 of the rows as read from the source."""

    def line(self) -> str:
        """Return the slice as its line in ``queues.jsonl``."""
        return slice_line(*self.queue, self.begin, self.end, self.next_offset, self.checksum)


@lru_cache(1)
def json_text(topic: str) -> str:
    """Return a topic's name in JSON, all ASCII; the same name is usually requested again."""
    return json.dumps(topic, ensure_ascii=True)


def slice_line(
    topic: str, queue_id: int, begin: int, end: int, next_offset: int | None, checksum: int
) -> str:
    """Return a slice as its line in ``queues.jsonl``: JSON without spaces."""
    following = "null" if next_offset is None else next_offset
    return f"[{json_text(topic)},{queue_id},{begin},{end},{following},{checksum}]\n"


class Segment(BaseModel):
    """The part of the plan that one task moves: consecutive slices of queues."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    slices: int
    units: int
    first: str
    """The first queue, for people."""
    last: str
    position: int
    """Position of its first line in ``queues.jsonl``, in bytes."""
    size_bytes: int
    digest: str
    """BLAKE2b of its lines."""


class Plan(BaseModel):
    """Queues, source, target and segments of a migration; see the module."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    created: str
    store: str
    """Root of the store, absolute."""
    identity: str
    """BLAKE2b of the log's first bytes, which identifies the store."""
    tail: str
    """BLAKE2b of the bytes before ``complete_to``: equal in a copy and its original."""
    source: str
    """Name of the source backend; ``log`` if the queues are built from the commit log."""
    target: str
    settings: dict[str, Any]
    """Settings with which tasks open the store, by RocketMQ's keys."""
    log_folders: list[str]
    min_phy_offset: int
    max_phy_offset: int
    """Max phy offset of the log when the plan was made."""
    complete_to: int
    """Phy offset up to which the queues contain all records."""
    queues: int
    units: int
    expired: int
    """Queues without units that have a next offset."""
    empty: int
    """Queues that never had a unit: nothing to move."""
    replaces: bool = False
    """The target has queues already, which the switch moves away."""
    topics: str | None = None
    """Selection of the topics that are moved, see ``topic_choice``; ``None``: all topics."""
    not_moved: int = 0
    """Queues of topics that are not moved."""
    segments: list[Segment]
    digest: str = ""
    """BLAKE2b of everything above and of all lines."""

    @property
    def config(self) -> StoreConfig:
        """Return the settings."""
        return StoreConfig.from_mapping(self.settings)

    @property
    def choice(self) -> dict[str, str]:
        """Return the topics that the target gets, for the store's record; empty: all."""
        return {} if self.topics is None else {self.target: self.topics}

    @property
    def left(self) -> list[str]:
        """Return the BatchCQ topics that stay in files, where a broker will not serve them."""
        return sorted(left_topics(self.choice))

    @property
    def is_light(self) -> bool:
        """Return whether only the light queues are moved; the other topics are read from files."""
        return self.topics == ONLY_LIGHT

    def refuse_other_settings(self, config: StoreConfig) -> None:
        """Refuse ``config`` if it contains settings that differ from those of the plan.

        File sizes and the memory of a task are always taken from the plan.

        Raises:
            RefusedStoreError: settings differ; the message has the keys with both values.
        """
        given = config.model_dump(mode="json", by_alias=True, include=config.model_fields_set)
        own = self.config.model_dump(mode="json", by_alias=True)
        others = [
            f"{key} is {value}, but {own[key]} in the plan"
            for key, value in sorted(given.items())
            if key not in _SHOWN_BY_FILES and own[key] != value
        ]
        if others:
            raise RefusedStoreError(
                f"the plan was made with other settings: {'; '.join(others)}; {PLAN_AGAIN}",
                path=Path(self.store),
            )

    def own_digest(self) -> str:
        """Return the correct value of ``digest``."""
        beside = {"digest", *(() if self.replaces else ("replaces",))}
        beside |= set() if self.topics else {"topics", "not_moved"}
        text = self.model_dump_json(exclude=beside)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def write_plan(workspace: Workspace, plan: Plan) -> Plan:
    """Write ``plan.json``, last of all; return the plan with its digest."""
    whole = plan.model_copy(update={"digest": plan.own_digest()})
    write_file(workspace.plan, whole.model_dump_json(indent=1) + "\n")
    return whole


def refuse_second_plan(workspace: Workspace) -> None:
    """Refuse to make a plan if one exists.

    Raises:
        RefusedStoreError: a plan exists; the message describes it and how to end it.
    """
    if not exists(workspace.plan):
        return
    try:
        plan = read_plan(workspace)
        which = f" (made at {plan.created} to move {plan.source} to {plan.target})"
    except StoreError:  # it cannot be read; the next step is the same
        which = ""
    if exists(workspace.switched):
        way = (
            "The store was switched with it: end that migration with cqstore migrate finish, or"
            " undo it with cqstore migrate rollback, and plan again"
        )
    else:
        way = (
            "Continue it with cqstore migrate run, or drop it with cqstore migrate rollback and"
            " plan again"
        )
    raise RefusedStoreError(
        f"cannot make a plan: a plan already exists{which}. {way}", path=workspace.plan
    )


def refuse_switched(workspace: Workspace, plan: Plan) -> None:
    """Refuse to run a plan that was carried out.

    Raises:
        RefusedStoreError: the store was switched by this plan.
    """
    if exists(workspace.switched):
        raise RefusedStoreError(
            f"the plan to move {plan.source} to {plan.target}, made at {plan.created}, has already"
            " been carried out and the store was switched: end the migration with cqstore migrate"
            " finish, or undo it with cqstore migrate rollback",
            path=workspace.plan,
        )


def read_plan(workspace: Workspace) -> Plan:
    """Read the plan.

    Raises:
        RefusedStoreError: there is no plan.
        UnsupportedFormatError: it has a newer format.
        CorruptionError: it was modified, or is not a valid plan.
    """
    path = workspace.plan
    if not exists(path):
        raise RefusedStoreError("no plan found: run cqstore migrate plan first", path=path)
    plan = read_versioned(path, Plan, FORMAT, "plan")
    if plan.own_digest() != plan.digest:
        raise CorruptionError(
            "the plan was modified after it was made", path=path, expected=plan.digest,
            got=plan.own_digest(),
        )  # fmt: skip
    return plan


def read_slices(path: Path, segment: Segment) -> Iterator[Slice]:
    """Yield the slices of one segment.

    Raises:
        CorruptionError: the lines are not those of the plan.
    """
    with os_errors("read the plan's queues", path), reading(path) as file:
        file.seek(segment.position)
        lines = file.read(segment.size_bytes)
    digest = hashlib.blake2b(lines, digest_size=16).hexdigest()
    if digest != segment.digest:
        raise CorruptionError(
            f"the lines of segment {segment.number} were modified after the plan was made",
            path=path, position=segment.position, expected=segment.digest, got=digest,
        )  # fmt: skip
    for line in lines.splitlines():
        topic, queue_id, begin, end, following, checksum = json.loads(line)
        if not 0 <= begin <= end <= MAX_UNITS:
            raise CorruptionError(
                "invalid range of units in the plan", path=path, got=line.decode()
            )
        yield Slice(QueueKey(topic, queue_id), begin, end, following, checksum)
