"""RequestHandlers: finds the function that answers a request, and turns errors into responses.

Requests of consumers are answered in the event loop, those of tools in a few threads. Some of them
a connected consumer answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from cqstore.remoting.command import Command
from cqstore.serve.client_calls import ClientCalls
from cqstore.serve.codes import WRITES, RequestCode, ResponseCode
from cqstore.serve.consumer_groups import ConsumerGroup
from cqstore.serve.consumer_requests import ConsumerRequests, Handler
from cqstore.serve.held_pulls import HeldPulls
from cqstore.serve.limits import Quota, ServeLimits
from cqstore.serve.message_requests import MessageRequests
from cqstore.serve.pulls import ConsumerLink, ConsumerPulls
from cqstore.serve.relayed_requests import RelayedRequests
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.serve.served_broker import JobHandler, ServedBroker
from cqstore.serve.tool_requests import ToolRequests
from cqstore.serve.users import Users
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import StoreError

_LOG = StoreLogger(__name__)
THREADS = 4
_POP = range(200_050, 200_200)


class RequestHandlers:
    """Answers the requests of all connections of one server."""

    def __init__(
        self,
        broker: ServedBroker,
        held: HeldPulls,
        calls: ClientCalls,
        limits: ServeLimits,
        version: str,
        on_change: Callable[[str, ConsumerGroup], object],
        users: Users | None = None,
    ) -> None:
        """``on_change``: see ``ConsumerRequests``; ``version``: see ``ToolRequests``.

        ``users``: those who must have signed a request; ``None``: signatures are ignored.
        """
        self._users = users
        self._broker = broker
        pulls = ConsumerPulls(broker, held)
        self._handlers: dict[int, Handler] = {
            RequestCode.PULL_MESSAGE: pulls.pull, RequestCode.LITE_PULL_MESSAGE: pulls.pull,
            **ConsumerRequests(broker, on_change).handlers(),
        }  # fmt: skip
        self._jobs: dict[int, JobHandler] = {
            **MessageRequests(broker).handlers(), **ToolRequests(broker, version).handlers(),
        }  # fmt: skip
        self._relayed = RelayedRequests(broker, calls).handlers()
        self._quota = Quota(limits.jobs, limits.jobs_per_address)
        self._threads = ThreadPoolExecutor(THREADS, "cqstore-serve")
        self._running: set[asyncio.Task[None]] = set()

    def handle(self, request: Request, link: ConsumerLink) -> Command | None:
        """Return the response; ``None``: it is sent later."""
        code = request.command.code
        try:
            if self._users is not None:
                self._users.check(request)
            if (handler := self._handlers.get(code)) is not None:
                return handler(request, link)
            if (job := self._jobs.get(code)) is not None:
                self._start(request, link, lambda: self._in_thread(job, request))
                return None
            if (relay := self._relayed.get(code)) is not None:
                self._start(request, link, lambda: relay(request))
                return None
        except (RefusedRequestError, StoreError) as exc:
            return _refusal(request, exc)
        except Exception:  # noqa: BLE001 - a fault of this program costs one response
            return _failure(request)
        return _unknown(request)

    async def finish(self, seconds: float) -> None:
        """Wait until the requests in threads are answered, at most ``seconds``."""
        if running := list(self._running):
            await asyncio.wait(running, timeout=seconds)

    async def close(self) -> None:
        """Wait for the requests that are answered in threads; accept no more."""
        for task in (tasks := list(self._running)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(cancel_futures=True)

    def _start(
        self, request: Request, link: ConsumerLink, answer: Callable[[], Awaitable[Command]]
    ) -> None:
        if not self._quota.has_room(link.address):
            raise RefusedRequestError(
                ResponseCode.SYSTEM_BUSY, "too many requests of tools are being answered"
            )
        self._quota.add(link.address)
        task = asyncio.get_running_loop().create_task(self._answer(request, link, answer))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _answer(
        self, request: Request, link: ConsumerLink, answer: Callable[[], Awaitable[Command]]
    ) -> None:
        try:
            response = await answer()
        except (RefusedRequestError, StoreError) as exc:
            response = _refusal(request, exc)
        except Exception:  # noqa: BLE001 - a fault of this program costs one response
            response = _failure(request)
        finally:
            self._quota.add(link.address, -1)
        link.respond(request, response)

    async def _in_thread(self, job: JobHandler, request: Request) -> Command:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, job, request)

    def _run(self, job: JobHandler, request: Request) -> Command:
        """Answer a request in a thread."""
        with self._broker.served.reading() as store:
            return job(request, store)


def _refusal(request: Request, exc: RefusedRequestError | StoreError) -> Command:
    if isinstance(exc, RefusedRequestError):
        return request.respond(exc.code, exc.remark)
    return request.respond(ResponseCode.SYSTEM_ERROR, exc.reason)


def _failure(request: Request) -> Command:
    """Return the response for a request that a fault of this program does not let it answer."""
    _LOG.exception("cannot answer request %d of %s", request.command.code, request.peer)
    return request.respond(ResponseCode.SYSTEM_ERROR, "internal error: see the server's log")


def _unknown(request: Request) -> Command:
    code = request.command.code
    if code in WRITES:
        return request.respond(
            ResponseCode.NO_PERMISSION,
            f"{WRITES[code]} ({code}) is refused: this server is read-only, the store is not"
            " changed",
        )
    why = "POP is not supported" if code in _POP else "this server does not support it"
    return request.respond(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request code {code}: {why}")
