"""SlaveSynchronize: replicates the metadata of a master to a follower's ``config/``.

Requests a broker's tables periodically and writes them as RocketMQ's files. An error is reported
and retried, and leaves the tables as they are; it never stops the replication of the log. An entry
that the master no longer has is removed here only if two complete responses in a row lack it, and
the queues of a topic only if the master confirms it once more while nothing is appended. An offset
that is lower at the master is kept here.

Source: RocketMQ ``SlaveSynchronize``.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from cqstore.broker.metadata.config_files import ConfigFiles
from cqstore.broker.metadata.lmq_offsets import (
    LMQ_TABLE,
    all_offsets,
    consumer_offset,
    lmq_consumer_offset,
)
from cqstore.broker.metadata.merged_offsets import Lower, Offsets, merged, offsets_in
from cqstore.broker.metadata.model import readings
from cqstore.replication.endpoint import endpoint, reason_of
from cqstore.replication.errors import BrokerError, WireError
from cqstore.replication.follow.blocking import to_the_end
from cqstore.replication.follow.follower import Follower
from cqstore.replication.synchronize import broker_requests as tables
from cqstore.replication.synchronize.broker_client import SYSTEM_ERROR, UNKNOWN_CODE, BrokerClient
from cqstore.replication.synchronize.broker_requests import GROUPS, TOPICS, BrokerTable, fetch_table
from cqstore.store.broker_files.file_names import (
    DELAYS_FILE,
    GROUPS_FILE,
    LMQ_OFFSETS_FILE,
    OFFSETS_FILE,
    REQUEST_MODE_FILE,
    TIMER_METRICS_FILE,
    TOPIC_QUEUE_MAPPING_FILE,
    TOPICS_FILE,
)
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import StoreError
from cqstore.store.path_kind import exists
from cqstore.store.record.message import SCHEDULE_TOPIC
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_LOG = StoreLogger(__name__)
_TOPICS_AT_ONCE = 1000
_PAUSE_SECONDS = 5.0
"""Maximum time without appends while topics are deleted; a master's timeout is 20 s."""
_OF_EVERY_BROKER = {
    TOPICS: {"SELF_TEST_TOPIC", SCHEDULE_TOPIC, "OFFSET_MOVED_EVENT"},
    GROUPS: {"TOOLS_CONSUMER", "SELF_TEST_C_GROUP"},
}
"""Names that every broker has; a response without them is ignored."""
_SHOWN = 3
Json = dict[str, Any]
Step = Callable[[BrokerClient], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals of requests for the tables and the end of the log, in seconds."""

    tables: float = 10.0
    """RocketMQ's slave requests them once a minute, under a controller every ten seconds."""
    log_end: float = 2.0
    answer: float = 30.0
    """Maximum wait for a response."""


class SlaveSynchronize:
    """Replicates the metadata of one broker, which must be the master of ``follower``.

    Runs in the follower's loop.
    """

    def __init__(
        self,
        store: MessageStore,
        follower: Follower,
        host: str,
        port: int,
        *,
        intervals: Intervals | None = None,
        accept_lower_offsets: bool = False,
        on_event: Callable[[str], object] = _LOG.info,
    ) -> None:
        """Prepare to replicate from the broker whose ``listenPort`` is ``port``.

        ``accept_lower_offsets``: take the master's offset if it is lower than the local one.
        ``on_event`` is called with a message when something fails, is kept, or is deleted.
        """
        self._store, self._follower = store, follower
        self._host, self._port = host, port
        self._intervals = intervals or Intervals()
        self._accept_lower = accept_lower_offsets
        self._on_event = on_event
        self._files = ConfigFiles(components_of(store).paths)
        self._held: dict[str, BrokerTable] = {}  # by table: the last complete one
        self._absent: dict[str, frozenset[str]] = {}  # by table: names missing in its last response
        self._leaving: dict[str, int] = {}  # topic → end of the log when it was first missing
        self._reported: set[str] = set()  # since the last round without an error
        self._reported_end_fault = ""
        self._reported_kept: set[str] = set()  # topics
        self._reported_lower: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Run until cancelled; a write in progress completes first."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._again_and_again(self.bring_tables, self._intervals.tables))
            both.create_task(self._again_and_again(self.fetch_log_end, self._intervals.log_end))

    async def once(self) -> None:
        """Request every table once."""
        async with self._client() as client:
            await self.bring_tables(client)

    def _client(self) -> BrokerClient:
        return BrokerClient(self._host, self._port, answer_seconds=self._intervals.answer)

    async def _again_and_again(self, step: Step, interval: float) -> None:
        async with self._client() as client:
            while True:
                await step(client)
                await asyncio.sleep(interval)

    async def fetch_log_end(self, client: BrokerClient) -> None:
        """Request the end of the master's log once; if that fails, it is reported as unknown."""
        progress = self._follower.progress
        try:
            progress.master_end = (await tables.log_end(client)).max_phy_offset
            self._reported_end_fault = ""
        except (OSError, StoreError) as exc:
            progress.master_end = -1
            if reason_of(exc) != self._reported_end_fault:
                self._reported_end_fault = reason_of(exc)
                self._announce(f"{reason_of(exc)}; the end of the master's log is unknown")

    async def bring_tables(self, client: BrokerClient) -> None:
        """Request every table once, and write those that have changed; errors are reported."""
        steps: list[tuple[Step, bool]] = [
            (self._topics, False),
            (self._groups, False),
            (self._consumer_offsets, False),
            (self._delay_offsets, False),
            (self._request_modes, True),
            (self._timer_check_point, True),
            (self._timer_metrics, True),
        ]
        fault = ""
        for step, may_be_missing in steps:
            try:
                await step(client)
            except (OSError, WireError) as exc:  # further requests would fail, too
                fault = self._fail(exc)
                break
            except StoreError as exc:
                code = exc.code if isinstance(exc, BrokerError) else 0
                if not (may_be_missing and code in {UNKNOWN_CODE, SYSTEM_ERROR}):
                    fault = self._fail(exc)
        progress = self._follower.progress
        progress.metadata_fault = fault
        if not fault:
            progress.metadata_time = time.time()
            self._reported.clear()

    def _fail(self, exc: OSError | StoreError) -> str:
        """Report why the master's tables could not be replicated; return the reason."""
        self._report(f"{reason_of(exc)}; the local tables are kept, retrying")
        return reason_of(exc)

    def _report(self, sentence: str) -> None:
        if sentence not in self._reported:
            self._announce(sentence)
            self._reported.add(sentence)

    def _announce(self, sentence: str) -> None:
        self._on_event(f"{endpoint(self._host, self._port)}: {sentence}")

    def _announce_deleted(self, what: str, gone: Collection[str]) -> None:
        self._announce(f"deleted because the master has deleted them: {what} {_some(gone)}")

    # ---- topics

    async def _topics(self, client: BrokerClient) -> None:
        """Replicate the master's topics, and delete those that it has deleted."""
        # Listed before the request: a topic that is created later may be missing in the response.
        here = {*await asyncio.to_thread(self._store.clean_unused_topics, ())}
        table = await self._table(client, TOPICS)
        former = await asyncio.to_thread(self._files.read, TOPICS_FILE)
        known = _entries(former, TOPICS.table)
        absent = (known.keys() | here) - table.entries.keys()
        gone = await self._departed(client, absent, here)
        stay = {name: known[name] for name in absent - gone if name in known}
        await to_the_end(
            self._files.write, TOPICS_FILE,
            {"dataVersion": table.version, TOPICS.table: {**table.entries, **stay}},
        )  # fmt: skip
        if table.beside_version:
            await to_the_end(
                self._files.write, TOPIC_QUEUE_MAPPING_FILE,
                {"dataVersion": table.beside_version, "topicQueueMappingInfoMap": table.beside},
            )  # fmt: skip

    async def _departed(
        self, client: BrokerClient, absent: Collection[str], with_queues: Collection[str]
    ) -> set[str]:
        """Return the topics to remove here, out of those missing in the master's response.

        When a topic is first missing, the end of the master's log is noted: records of the topic
        are before that end, and may not have arrived yet.
        """
        self._leaving = {name: at for name, at in self._leaving.items() if name in absent}
        twice = [*self._leaving]
        if fresh := [name for name in absent if name not in self._leaving]:
            end = (await tables.log_end(client)).max_phy_offset
            self._leaving |= dict.fromkeys(fresh, end)
        gone = {name for name in twice if name not in with_queues}
        if gone:
            await to_the_end(components_of(self._store).clean.positions.remove, gone)
        if with_those := [name for name in twice if name in with_queues]:
            gone |= await self._delete(client, with_those[:_TOPICS_AT_ONCE])
        if gone:
            self._announce_deleted(TOPICS.what, gone)
        return gone

    async def _delete(self, client: BrokerClient, topics: Collection[str]) -> set[str]:
        """Delete the queues of those ``topics`` that are confirmed deleted; return these topics."""
        ports = (await tables.log_end(client)).slave_ports
        progress = self._follower.progress
        if not (progress.connected and ports is not None and progress.port in ports):
            if fresh := [name for name in topics if name not in self._reported_kept]:
                self._announce(
                    f"the master no longer has the topics {_some(fresh)}, but they are kept: the"
                    f" broker does not list the connection from port {progress.port} as a slave"
                )
            self._reported_kept = {*topics}
            return set()
        async with self._follower.paused():
            end = self._store.max_phy_offset()
            due = [name for name in topics if self._leaving[name] <= end]
            async with asyncio.timeout(_PAUSE_SECONDS):
                gone = {name for name in due if not await tables.has_topic(client, name)}
            if gone:
                await to_the_end(self._store.delete_topics, gone)
        return gone

    # ---- other tables

    async def _groups(self, client: BrokerClient) -> None:
        """Replicate the master's groups, and their forbidden operations."""
        table = await self._table(client, GROUPS)
        former = await asyncio.to_thread(self._files.read, GROUPS_FILE)
        known = _entries(former, GROUPS.table)
        stay = self._not_gone(GROUPS.what, known, table.entries)
        await to_the_end(
            self._files.write, GROUPS_FILE,
            {"dataVersion": table.version, "forbiddenTable": table.beside,
             GROUPS.table: {**table.entries, **stay}},
        )  # fmt: skip

    async def _table(self, client: BrokerClient, of: tables.Paged) -> BrokerTable:
        """Return one of the broker's tables.

        Raises:
            BrokerError: the table lacks entries that every broker has.
        """
        table = await fetch_table(client, of, self._held.get(of.what))
        if lacking := _OF_EVERY_BROKER[of] - table.entries.keys():
            raise BrokerError(
                f"the broker's response for {of.what} is ignored: it lacks {_some(lacking)}, which"
                " every broker has"
            )
        self._held[of.what] = table
        return table

    def _not_gone(self, what: str, known: Json, master: Mapping[str, object]) -> Json:
        """Return the entries of ``known`` to keep: those missing only in this response."""
        absent = frozenset(known.keys() - master.keys())
        gone = absent & self._absent.get(what, frozenset())
        self._absent[what] = absent
        if gone:
            self._announce_deleted(what, gone)
        return {name: known[name] for name in absent - gone}

    async def _consumer_offsets(self, client: BrokerClient) -> None:
        answer = await tables.consumer_offsets(client)
        # A broker with offsets in RocksDB only imports a file whose counter is above 0.
        answer["dataVersion"]["counter"] = max(answer["dataVersion"]["counter"], 1)
        await to_the_end(self._merge_consumer_offsets, answer)

    async def _delay_offsets(self, client: BrokerClient) -> None:
        answer = await tables.delay_offsets(client)
        answer["offsetTable"] = {"": answer["offsetTable"]}
        await to_the_end(self._merge_delay_offsets, answer)

    def _merge_consumer_offsets(self, answer: Json) -> None:
        """Write the higher of each local and master's offset, in the files that a broker reads.

        ``consumerOffset.json`` always contains all offsets.
        """
        name, version = OFFSETS_FILE, answer["dataVersion"]
        own: Offsets = {}
        for each in (name, LMQ_OFFSETS_FILE):
            content = self._files.read(each)
            if content is not None:
                table = all_offsets(content, self._files.path(each))
                own, _ = merged(own, table, accept_lower=lambda _: False)
        master = all_offsets(answer, self._files.path(name))
        offsets, lower = merged(own, master, accept_lower=self._is_accepted)
        self._write_consumer_offsets(offsets, version, lmq=LMQ_TABLE in answer)
        self._report_lower(name, "consumer offsets", lower)

    def _write_consumer_offsets(self, offsets: Offsets, version: Json, *, lmq: bool) -> None:
        """``lmq``: the master is a broker that reads the file for LMQ offsets."""
        other = LMQ_OFFSETS_FILE
        if lmq or self._store.config.enable_lmq or exists(self._files.path(other)):
            self._files.write(other, lmq_consumer_offset(offsets, version))
        self._files.write(OFFSETS_FILE, consumer_offset(offsets, version))

    def _merge_delay_offsets(self, answer: Json) -> None:
        """Write the higher of each local and master's offset."""
        name = DELAYS_FILE
        own = offsets_in(self._files.read(name), self._files.path(name))
        offsets, lower = merged(own, answer["offsetTable"], accept_lower=self._is_accepted)
        self._files.write(name, answer | {"offsetTable": offsets.get("", {})})
        self._report_lower(name, "delay offsets", lower)

    def _is_accepted(self, found: Lower) -> bool:
        """Return whether an offset that is lower at the master is accepted.

        It is accepted in any case if the local offset is beyond the end of its queue: the topic
        was deleted at the master and created again, and the group would skip messages.
        """
        ways = list(readings(found.key))
        if self._accept_lower or len(ways) != 1 or not found.queue_id.isdecimal():
            return self._accept_lower
        topic, _ = ways[0]
        return 0 < self._store.max_offset(topic, int(found.queue_id)) < found.own

    def _report_lower(self, name: str, what: str, lower: list[Lower]) -> None:
        """Report offsets that are lower at the master, each one once."""
        now = {(name, f"{each.key}/{each.queue_id}"): each for each in lower}
        fresh = [each for place, each in now.items() if place not in self._reported_lower]
        others = {place for place in self._reported_lower if place[0] != name}
        self._reported_lower = others | now.keys()
        for is_taken in (False, True):
            some = [each for each in fresh if self._is_accepted(each) is is_taken]
            if some:
                shown = "; ".join(
                    f"{each.key or 'level'} {each.queue_id}: {each.own} here,"
                    f" {each.master} at the master"
                    for each in some[:_SHOWN]
                )
                done = (
                    "replaced by the master's" if is_taken
                    else "the local ones are kept (--accept-lower-offsets replaces them)"
                )  # fmt: skip
                self._announce(
                    f"{len(some)} {what} are lower at the master than here: {done}."
                    f" {shown}{' …' if len(some) > _SHOWN else ''}"
                )

    async def _request_modes(self, client: BrokerClient) -> None:
        """Replicate the request modes of the groups."""
        key = "messageRequestModeMap"
        master = (await tables.request_modes(client))[key]
        former = await asyncio.to_thread(self._files.read, REQUEST_MODE_FILE)
        known = _entries(former, key)
        stay = self._not_gone("the request modes", known, master) if master else known
        if master or known:
            await to_the_end(self._files.write, REQUEST_MODE_FILE, {key: {**master, **stay}})

    async def _timer_check_point(self, client: BrokerClient) -> None:
        answer = await tables.timer_check_point(client)
        await to_the_end(self._files.merge_timer_check, answer)

    async def _timer_metrics(self, client: BrokerClient) -> None:
        answer = await tables.timer_metrics(client)
        if answer["timingCount"]:
            await to_the_end(self._files.write, TIMER_METRICS_FILE, answer)


def _entries(content: Json | None, key: str) -> Json:
    """Return a table of a local file; empty if there is none."""
    table = (content or {}).get(key)
    return table if isinstance(table, dict) else {}


def _some(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} … ({len(names)})"
