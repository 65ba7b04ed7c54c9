"""Plan: which queues are moved, in which pieces, and what their source looked like.

Two files that a person can read: ``plan.json``, and ``queues.jsonl`` with a line for each slice of
a queue, in key order. A segment is a range of lines and the work of one task.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from cqstore.migration.markers import read_versioned
from cqstore.migration.workspace import Workspace, write_file
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreError, os_errors
from cqstore.store.files import reading
from cqstore.store.path_kind import exists
from cqstore.store.queue.units import MAX_UNITS, QueueKey
from cqstore.store.settings.config import StoreConfig

FORMAT = 1
"""Version of the plan's files."""
LOG_IN_SEVERAL_FOLDERS = "a commit log in several folders is not supported"
PLAN_AGAIN = "make a new plan (cqstore migrate rollback, then cqstore migrate plan)"
"""End of an error about a plan that no longer fits its store."""
_SHOWN_BY_FILES = frozenset({
    "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "rocksdbMemoryBytes",
})  # fmt: skip
"""Keys of settings that the planner replaces by what it found."""


class Slice(NamedTuple):
    """Units of one queue that one task moves."""

    queue: QueueKey
    begin: int
    """Queue offset of the first unit."""
    end: int
    """Queue offset behind the last unit."""
    next_offset: int | None
    """Where the queue goes on, if this is its last slice."""
    checksum: int
    """CRC-32 of the rows as the source gives them."""

    def line(self) -> str:
        """Return the slice as its line in ``queues.jsonl``."""
        topic, queue_id = self.queue
        row = [topic, queue_id, self.begin, self.end, self.next_offset, self.checksum]
        return json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n"


class Segment(BaseModel):
    """The part of the plan that one task moves: slices of queues that follow each other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    slices: int
    units: int
    first: str
    """The first queue, for people."""
    last: str
    position: int
    """Where its lines begin in ``queues.jsonl``, bytes."""
    size_bytes: int
    digest: str
    """BLAKE2b of its lines."""


class Plan(BaseModel):
    """What is moved, from where to where, in which segments; see the module."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    created: str
    store: str
    """Root of the store, absolute."""
    identity: str
    """BLAKE2b of the log's first bytes: which store this is."""
    tail: str
    """The same of the bytes before ``complete_to``: a copy and its original have them alike."""
    source: str
    """Name of the backend that the queues are in; ``log`` if they are built from it."""
    target: str
    settings: dict[str, Any]
    """Settings that tasks open the store with, by RocketMQ's keys."""
    log_folders: list[str]
    min_phy_offset: int
    max_phy_offset: int
    """The log's ends when the plan was made."""
    complete_to: int
    """The queues have every record that ends at or below it, bytes."""
    queues: int
    units: int
    expired: int
    """Queues of which nothing but the next offset is left."""
    empty: int
    """Queues that never had a unit: nothing to move."""
    replaces: bool = False
    """There are queues of the target already, which the switch moves away."""
    segments: list[Segment]
    digest: str = ""
    """BLAKE2b of everything above and of all lines."""

    @property
    def config(self) -> StoreConfig:
        """Return the settings."""
        return StoreConfig.from_mapping(self.settings)

    def refuse_other_settings(self, config: StoreConfig) -> None:
        """Refuse ``config`` where a setting that it gives was another one when this was made.

        Sizes that the files show, and what a task needs of memory, are the plan's in any case.

        Raises:
            RefusedStoreError: it names the keys, with both values.
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
        """Return what ``digest`` has to be."""
        beside = {"digest"} if self.replaces else {"digest", "replaces"}
        text = self.model_dump_json(exclude=beside)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def write_plan(workspace: Workspace, plan: Plan) -> Plan:
    """Write ``plan.json``, last of all; return the plan with its digest."""
    whole = plan.model_copy(update={"digest": plan.own_digest()})
    write_file(workspace.plan, whole.model_dump_json(indent=1) + "\n")
    return whole


def refuse_second_plan(workspace: Workspace) -> None:
    """Refuse to plan where a plan is: the steps that follow would carry out that one.

    Raises:
        RefusedStoreError: there is one; the sentence says which, and how it is ended.
    """
    if not exists(workspace.plan):
        return
    try:
        plan = read_plan(workspace)
        which = f" (made at {plan.created} to move {plan.source} to {plan.target})"
    except StoreError:  # it cannot be read; the way out is the same
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
    """Refuse to move queues again by a plan that was carried out.

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
    """Return the plan.

    Raises:
        RefusedStoreError: there is none.
        UnsupportedFormatError: it is of a newer version.
        CorruptionError: it was changed, or is none.
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
