"""The command ``cqstore topics --clean``."""

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import typer

from cqstore.broker.cleaning.cleaning_round import CleaningRound, Deleter, delete_from_store
from cqstore.broker.cleaning.report import CleaningReport, CleaningTally
from cqstore.broker.cleaning.rules import CleanedTopic, CleaningRules
from cqstore.broker.lite_topics import MIN_TTL, min_ttl_ms
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.one_form import find_one_form, named_form
from cqstore.cli.interrupts import INTERRUPTED, interrupts
from cqstore.cli.options import WOULD_BE_DELETED, note, open_to_delete
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.cli.table import Row
from cqstore.cli.topics_clean import CleanRequest
from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.errors import StoreLockedError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.broker_conf import BrokerConf

_CHECK_SECONDS = 0.2
"""Interval at which a waiting command checks whether Ctrl-C was pressed."""
IsInterrupted = Callable[[], bool]


def clean_topics(
    root: Path, config: Path | None, backend: str | None, request: CleanRequest, kind: OutputFormat
) -> None:
    """Make a round over the topics of a store, or one per interval, see ``TopicsCleaning``.

    Raises:
        StoreLockedError: the store is open elsewhere. With an interval, the round is left out.
        StoreError: as for ``CleaningRound``.
        typer.Exit: Ctrl-C ended the only round before its end; the exit code is 130.
    """
    with interrupts(signal.SIGTERM) as is_interrupted:
        cleaning = _Cleaning(root, config, backend, request, is_interrupted)
        if request.every is None:
            if not cleaning.round(kind).is_complete:
                raise typer.Exit(INTERRUPTED)
            return
        while not is_interrupted():
            try:
                cleaning.round(kind)
            except StoreLockedError as exc:
                note(f"this round is left out: {exc}")
            sys.stdout.flush()
            cleaning.wait(request.every)


class _Cleaning:
    """The rounds of one command."""

    def __init__(
        self, root: Path, config: Path | None, backend: str | None, request: CleanRequest,
        is_interrupted: IsInterrupted,
    ) -> None:  # fmt: skip
        self._open = partial(open_to_delete, root, config, backend)
        self._config, self._request = config, request
        self._is_interrupted = is_interrupted
        self._form = named_form(request.form)
        values = {} if config is None else BrokerConf.read(config).taken([MIN_TTL])
        self._rules = CleaningRules(
            unused=request.unused, idle_days=request.idle_days, lite=request.lite,
            lagging=request.lagging, prefix=request.prefix, topics_per_second=request.rate,
            min_lite_ttl_ms=min_ttl_ms(values),
        )  # fmt: skip

    def round(self, kind: OutputFormat) -> CleaningReport:
        """Make a round, print its topics, and return its report.

        The store is opened for writing only if there is a topic to delete.
        """
        with self._open(yes=False) as store:
            report = self._print(store, None, kind)
        if report is None:
            with self._open(yes=True) as store:  # a crash may have left records undispatched
                report = self._print(store, delete_from_store(store), kind)
        assert report is not None
        self._note(report)
        return report

    def _print(
        self, store: MessageStore, delete: Deleter | None, kind: OutputFormat
    ) -> CleaningReport | None:
        """Print the topics of a round; ``None``: there are some to delete, and none was printed."""
        queues = components_of(store).queues.queues_estimate()
        with progress("examining", queues, "queues") as tick:
            tables, now = self._tables(store), time.time()
            made = CleaningRound(store, self._rules, tables, delete, self.wait, now, tick)
            tally = CleaningTally(is_dry_run=not self._request.yes)
            found: Iterable[CleanedTopic] = tally.counted(made.topics())
            if self._request.yes and delete is None:
                found = list(_until_selected(found))
                if tally.selected:
                    return None
            output(kind).rows(_rows(found, is_done=delete is not None))
        return tally.report(made.examined, is_complete=not made.is_stopped)

    def _tables(self, store: MessageStore) -> BrokerMetadata:
        paths = components_of(store).paths
        found = find_one_form(paths, self._form, self._config)
        return found or BrokerMetadata(Form.JSON, paths.config)

    def wait(self, seconds: float) -> bool:
        """Wait for some seconds, or until Ctrl-C is pressed; return whether it was."""
        end, never = time.monotonic() + seconds, Latch()
        while (left := end - time.monotonic()) > 0 and not self._is_interrupted():
            never.wait(min(left, _CHECK_SECONDS))
        return self._is_interrupted()

    def _note(self, report: CleaningReport) -> None:
        """Print sentences on what was deleted, would be deleted, or was kept."""
        how = WOULD_BE_DELETED if report.is_dry_run else "deleted"
        note(
            f"{sum(report.selected.values())} of {report.examined} topics with {report.queues}"
            f" queues, {report.messages} messages and {report.queue_bytes} bytes in queues {how}"
        )
        if report.kept:
            reasons = ", ".join(f"{count} {why}" for why, count in sorted(report.kept.items()))
            note(f"{sum(report.kept.values())} topics kept: {reasons}")
        if not report.is_complete:
            note("interrupted: the remaining topics are unchanged")


def _until_selected(found: Iterable[CleanedTopic]) -> Iterator[CleanedTopic]:
    """Yield topics up to the first one to delete."""
    for each in found:
        yield each
        if each.kept is None:
            return


def _rows(found: Iterable[CleanedTopic], *, is_done: bool) -> Iterator[Row]:
    """Yield a row for each topic that a rule selects."""
    for each in found:
        result = "deleted" if is_done else "selected"
        yield {
            "topic": each.topic,
            "rule": each.rule.value,
            "result": result if each.kept is None else "kept",
            "reason": each.kept.value if each.kept is not None else None,
            "detail": each.detail,
            "queues": each.queues,
            "messages": each.messages,
            "queueBytes": each.queue_bytes,
            "newestStoreTimestamp": each.newest,
        }
