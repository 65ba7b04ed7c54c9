"""A followed move that runs in a thread; its sentences can be waited for."""

import asyncio
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from pathlib import Path

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.migration.follow.move import FollowedMove, FollowedReport
from cqstore.replication.follow.follower_progress import Timing
from cqstore.store.settings.config import StoreConfig

QUICK = Timing(first_retry=0.01, last_retry=0.02, quiet=0.02, last_file=0.05)
SECONDS = 120
LEVEL = "you can stop the broker now"


class Moving:
    """A move that runs in a thread; its sentences can be waited for."""

    def __init__(
        self,
        root: Path,
        port: int,
        own: Path,
        config: StoreConfig,
        backend: str = "rocksdb",
        timing: Timing = QUICK,
        without: Collection[AcceptedLoss] = (),
        commit_log: Path | None = None,
    ) -> None:
        self.reported: list[str] = []
        self._condition = threading.Condition()
        self._actions: dict[str, Callable[[], object]] = {}
        self.move = FollowedMove(
            root, ("127.0.0.1", port), own, config,
            backend=backend, timing=timing, on_event=self._on_event, without=without,
            commit_log=commit_log,
        )  # fmt: skip
        self.ended: Future[FollowedReport] = Future()
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[FollowedReport]]] = (
            Future()
        )
        self._thread = threading.Thread(target=self._run)

    def on(self, words: str, action: Callable[[], object]) -> None:
        """Do something as soon as it says that."""
        self._actions[words] = action

    def _on_event(self, sentence: str) -> None:
        for words in [words for words in self._actions if words in sentence]:
            self._actions.pop(words)()
        with self._condition:
            self.reported.append(sentence)
            self._condition.notify_all()

    def _run(self) -> None:
        async def run() -> FollowedReport:
            task = asyncio.ensure_future(self.move.run())
            self._ready.set_result((asyncio.get_running_loop(), task))
            return await task

        try:
            self.ended.set_result(asyncio.run(run()))
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the test is told
            self.ended.set_exception(exc)
        finally:
            self._on_event("ended")

    def has_reported(self, words: str) -> bool:
        return any(words in each or each == "ended" for each in self.reported)

    def wait_for(self, words: str) -> None:
        with self._condition:
            assert self._condition.wait_for(lambda: self.has_reported(words), SECONDS), (
                self.reported
            )
        assert any(words in each for each in self.reported), self.ended.result()

    def cancel(self) -> None:
        loop, task = self._ready.result(SECONDS)
        loop.call_soon_threadsafe(task.cancel)

    def start(self) -> "Moving":
        self._thread.start()
        return self

    def end(self) -> FollowedReport:
        """Wait for the end; return the report, or raise what ended it."""
        try:
            return self.ended.result(SECONDS)
        finally:
            self._thread.join(SECONDS)
