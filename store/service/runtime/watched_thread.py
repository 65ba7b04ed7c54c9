"""Worker: a thread of the store whose unexpected end is logged and reported to its owner."""

from collections.abc import Callable

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.thread import StoreThread

_LOG = StoreLogger(__name__)
EXIT_SECONDS = 10.0
"""Maximum wait for the end of a thread at the end of the interpreter, or if the thread may be in
code of the embedding program."""


class Worker:
    """Runs ``work`` in a thread; ``gave_up`` is called there with any exception that it raises.

    ``means`` is the consequence, for the log.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], object],
        gave_up: Callable[[BaseException], object],
        means: str = "the store accepts no more writes",
    ) -> None:
        self._name = name
        self._means = means
        self._work = work
        self._gave_up = gave_up
        self._thread = StoreThread(name, self._run)
        self._begun = False

    def start(self) -> None:
        """Start the thread."""
        self._begun = True  # first: an interrupted start may leave it running
        self._thread.start()

    def end(self, seconds: float | None = None) -> None:
        """Wait for the end of the thread, if it was started; the caller has stopped ``work``.

        At most ``seconds``, if given.
        """
        if self._begun:
            self._thread.join(seconds)

    def refuse_itself(self) -> None:
        """Refuse a call that waits for the end of the thread from that thread.

        Raises:
            NestedCallError: the caller is the thread.
        """
        self._thread.refuse_itself()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the owner must know
            _LOG.exception("the thread %s ended: %s", self._name, self._means)
            self._gave_up(exc)
