"""Operations: how each is read from a trace, run on a side, and its answer written as text.

The lines are those of ``operation_lines`` and ``listQueues``. ``at`` is the due time of an
operation, in seconds since the start of the trace.
"""

import json
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from cqstore.ab.trace.operation_lines import END
from cqstore.ab.trace.trace_marks import FirstLine, LastLine, missing_of
from cqstore.cli.message_files.text_input import text_input
from cqstore.store.errors import StoreConfigError
from cqstore.store.queue.facts import QueueSpan
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import GetMessageResult, PutMessageResult
from cqstore.store.settings.validation import first_fault

MAX_OPERATIONS = 200_000
"""Maximum number of operations of a trace that are run; the rest is skipped."""
MAX_PUT_BYTES = 1 << 22
"""Maximum size of the body of a put."""
_LONGEST_LINE = 1 << 16
_LAST_LINE = f'{{"trace":"{END}"'.encode()
AnswerText = tuple[str, int]
"""An answer as text, and its number of items."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("Input should be text")  # noqa: TRY004 - pydantic's way
    return value


Text = Annotated[str, PlainValidator(_text)]
"""A name in a store: it may contain half a surrogate pair, which pydantic would reject."""


class _Operation(BaseModel):
    """An operation of a trace: the fields of its line, and the call that runs it."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    at: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @abstractmethod
    def bind(self, store: MessageStore) -> Callable[[], object]:
        """Return the call that runs the operation, with all lookups done."""

    def to_text(self, answer: object) -> AnswerText:
        """Return ``answer`` as text; texts are equal if and only if answers are."""
        return str(answer), 1


class _OfQueue(_Operation):
    """An operation on one queue."""

    topic: Text
    queue_id: int = 0


class Pull(_OfQueue):
    """Pull messages from a queue."""

    op: Literal["pull"] = "pull"
    offset: int
    count: int = 32
    tags: Text | None = None

    def bind(self, store: MessageStore) -> Callable[[], object]:
        """Return the call that pulls, with a filter if there is one."""
        tags = None if self.tags is None else TagFilter(self.tags)
        return partial(store.get_message, self.topic, self.queue_id, self.offset, self.count, tags)

    def to_text(self, answer: object) -> AnswerText:
        """Return status, offsets, and a checksum over the bytes of all records."""
        if not isinstance(answer, GetMessageResult):
            return str(answer), 0
        checksum = 0
        for record in answer.records:
            checksum = zlib.crc32(record, checksum)
        text = (
            f"{answer.status.name}, next {answer.next_begin_offset}, min {answer.min_offset},"
            f" max {answer.max_offset}, messages {_offsets(answer.queue_offsets)},"
            f" {answer.total_bytes} bytes, checksum {checksum:08x}"
        )
        if answer.hole is not None:
            text += f", hole {answer.hole.start} to {answer.hole.stop - 1}"
        if answer.damaged:
            text += f", damaged {[row.queue_offset for row in answer.damaged]}"
        return text, len(answer.records)


class TimeSearch(_OfQueue):
    """Find the offset for a store time."""

    op: Literal["timeSearch"] = "timeSearch"
    timestamp: int = Field(description="Store time, ms.")
    boundary: Literal["lower", "upper"] = "lower"

    def bind(self, store: MessageStore) -> Callable[[], object]:
        """Return the call that searches by time."""
        boundary = BoundaryType.LOWER if self.boundary == "lower" else BoundaryType.UPPER
        return partial(store.offset_by_time, self.topic, self.queue_id, self.timestamp, boundary)


class MinOffset(_OfQueue):
    """Get the min offset of a queue."""

    op: Literal["minOffset"] = "minOffset"

    def bind(self, store: MessageStore) -> Callable[[], object]:
        """Return the call that gets the min offset."""
        return partial(store.min_offset, self.topic, self.queue_id)


class MaxOffset(_OfQueue):
    """Get the max offset of a queue."""

    op: Literal["maxOffset"] = "maxOffset"

    def bind(self, store: MessageStore) -> Callable[[], object]:
        """Return the call that gets the max offset."""
        return partial(store.max_offset, self.topic, self.queue_id)


class Estimate(_OfQueue):
    """Estimate how many messages of a range match a filter."""

    op: Literal["estimate"] = "estimate"
    offset: int = Field(alias="from")
    to: int
    tags: Text | None = None

    def bind(self, store: MessageStore) -> Callable[[], object]:
        """Return the call that estimates."""
        tags = TagFilter(self.tags or "*")
        return partial(
            store.estimate_message_count, self.topic, self.queue_id, self.offset, self.to, tags
        )


class ListTopics(_Operation):
    """List the topics that begin with a prefix."""

    op: Literal["listTopics"] = "listTopics"
    prefix: Text = ""

    def bind(self, store: MessageStore) -> Callable[[], object]:
        """Return the call that lists topics, to the last one."""
        return lambda: list(store.topics(self.prefix))

    def to_text(self, answer: object) -> AnswerText:
        """Return the number and a checksum, because the order depends on the backend."""
        return _list_to_text(answer, "topics")


class ListQueues(_Operation):
    """List the queues of a topic, or all of them, each with its minimum and maximum."""

    op: Literal["listQueues"] = "listQueues"
    topic: Text | None = None

    def bind(self, store: MessageStore) -> Callable[[], object]:
        """Return the call that lists queues, to the last one."""
        return lambda: list(store.queue_spans(self.topic))

    def to_text(self, answer: object) -> AnswerText:
        """Return the number and a checksum, because the order depends on the backend."""
        return _list_to_text(answer, "queues")


class Put(_OfQueue):
    """Put a message with a body of ``size`` bytes."""

    op: Literal["put"] = "put"
    size: int = Field(default=0, ge=0, le=MAX_PUT_BYTES)
    tags: Text | None = None

    def bind(self, store: MessageStore) -> Callable[[], object]:
        """Return the call that puts."""
        properties = {} if self.tags is None else {"TAGS": self.tags}
        body = bytes(max(self.size, 1))
        message = Message(self.topic, body, self.queue_id, properties, born_timestamp=1)
        return partial(store.put_message, message)

    def to_text(self, answer: object) -> AnswerText:
        """Return the parts of the answer that do not depend on the time."""
        if not isinstance(answer, PutMessageResult):
            return str(answer), 0
        return f"{answer.status.name}, offset {answer.queue_offset}", int(answer.ok)


class Query(_Operation):
    """Query by key. It is not run: the index gives the same answer on every side."""

    op: Literal["query"] = "query"
    topic: Text
    key: Text
    count: int | None = None
    begin: int | None = None
    end: int | None = None

    def bind(self, store: MessageStore) -> Callable[[], object]:
        """Refuse: the caller leaves queries out.

        Raises:
            StoreConfigError: always.
        """
        raise StoreConfigError("a comparison does not run queries by key")


Operation = Pull | TimeSearch | MinOffset | MaxOffset | Estimate | ListTopics | ListQueues | Put
_ANY: TypeAdapter[Operation | Query] = TypeAdapter(
    Annotated[Operation | Query, Field(discriminator="op")]
)


class TraceFile(NamedTuple):
    """Contents of a trace file."""

    operations: list[Operation]
    queries: int
    """Number of queries by key, which are not run."""
    recorded: bool
    """Whether the trace was recorded, from a store or a broker."""
    missing: Sequence[str] = ()
    """Sentences about what the recording lacks."""


def read_trace(path: Path, limit: int = MAX_OPERATIONS) -> TraceFile:
    """Return at most ``limit`` operations of a trace; operations after them are not checked.

    Raises:
        RefusedStoreError: there is no such file.
        StoreIOError: it cannot be read.
        StoreConfigError: a line is not an operation, or there is no operation.
    """
    found: list[Operation] = []
    queries, first, last = 0, None, None
    with text_input(path) as file:
        lines = iter(lambda: file.readline(_LONGEST_LINE), b"")
        for number, line in enumerate(lines, 1):
            if not line.strip() or (len(found) == limit and not line.startswith(_LAST_LINE)):
                continue
            if last is not None:
                raise StoreConfigError(f"line {number} follows the last line", path=path)
            operation = _parsed(line, number, path)
            if isinstance(operation, FirstLine):
                first = operation
            elif isinstance(operation, LastLine):
                last = operation
            elif isinstance(operation, Query):
                queries += 1
            else:
                found.append(operation)
            if len(found) == limit and not (first is not None and first.source):
                break  # such a file has no last line
    if not found:
        raise StoreConfigError("the trace has no operation to run", path=path)
    return TraceFile(found, queries, first is not None, missing_of(first, last))


def _parsed(line: bytes, number: int, path: Path) -> Operation | Query | FirstLine | LastLine:
    """Return the operation of a line, or the first or last line of a recording.

    Raises:
        StoreConfigError: the line is not an operation; the message has the reason.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise StoreConfigError(f"line {number} is not valid JSON", path=path) from exc
    is_first = number == 1 and isinstance(value, dict) and "trace" in value
    is_last = not is_first and line.startswith(_LAST_LINE)
    try:
        if is_first:
            return FirstLine.model_validate(value)
        return LastLine.model_validate(value) if is_last else _ANY.validate_python(value)
    except ValidationError as exc:
        reason = first_fault(exc, 0 if is_first or is_last else 1)  # after the kind of operation
        raise StoreConfigError(
            f"line {number} is not a valid operation: {reason}", path=path
        ) from exc


def trace_lines(operations: Iterable[Operation]) -> Iterator[bytes]:
    """Yield a line for each operation, as ``read_trace`` takes it."""
    for operation in operations:
        line = operation.model_dump(by_alias=True, exclude_none=True)
        yield json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _offsets(offsets: list[int]) -> str:
    if not offsets:
        return "none"
    if offsets[-1] - offsets[0] == len(offsets) - 1:
        return f"{offsets[0]} to {offsets[-1]}"
    shown = ", ".join(map(str, islice(offsets, 64)))
    return f"{shown}, {len(offsets)} in total" if len(offsets) > 64 else shown  # noqa: PLR2004


def _list_to_text(answer: object, what: str) -> AnswerText:
    if not isinstance(answer, list):
        return str(answer), 0
    checksum = 0
    rows = sorted(f"{row.queue} {row[1:]}" if isinstance(row, QueueSpan) else row for row in answer)
    for row in rows:
        checksum = zlib.crc32(row.encode(), checksum)
    return f"{len(answer)} {what}, checksum {checksum:08x}", len(answer)
