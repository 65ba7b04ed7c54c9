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
from cqstore.serve.refusals import failure, refusal
from cqstore.serve.relayed_requests import RelayedRequests
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.serve.send_requests import SendRequests
from cqstore.serve.served_broker import JobHandler, ServedBroker
from cqstore.serve.store_writer import StoreWriter
from cqstore.serve.tool_requests import ToolRequests
from cqstore.serve.user_requests import UserRequests
from cqstore.serve.users import Users
from cqstore.store.errors import StoreError

THREADS = 4
_POP = range(200_050, 200_200)
_TRANSACTIONS = {37, 323}


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
        writer: StoreWriter | None = None,
    ) -> None:
        """``on_change``: see ``ConsumerRequests``; ``version``: see ``ToolRequests``.

        ``users``: those who must have signed a request; ``None``: signatures are ignored.
        ``writer`` puts what clients send; ``None``: the server is read-only.
        """
        self._users = users
        self._broker = broker
        self._is_writable = writer is not None
        pulls = ConsumerPulls(broker, held)
        self._handlers: dict[int, Handler] = {
            RequestCode.PULL_MESSAGE: pulls.pull, RequestCode.LITE_PULL_MESSAGE: pulls.pull,
            **ConsumerRequests(broker, on_change).handlers(), **UserRequests(users).handlers(),
        }  # fmt: skip
        self._jobs: dict[int, JobHandler] = {
            **MessageRequests(broker).handlers(), **ToolRequests(broker, version).handlers(),
        }  # fmt: skip
        self._relayed = RelayedRequests(broker, calls).handlers()
        self._sends = None if writer is None else SendRequests(broker, writer, limits)
        if self._sends is not None:
            self._handlers |= self._sends.handlers()
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
            return refusal(request, exc)
        except Exception:  # noqa: BLE001 - a fault of this program costs one response
            return failure(request)
        return self._unknown(request)

    async def drain(self) -> None:
        """Refuse further messages, and acknowledge those that were put."""
        if self._sends is not None:
            await self._sends.drain()

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
            response = refusal(request, exc)
        except Exception:  # noqa: BLE001 - a fault of this program costs one response
            response = failure(request)
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

    def _unknown(self, request: Request) -> Command:
        code = request.command.code
        if code in WRITES:
            what = f"{WRITES[code]} ({code}) is refused"
            if not self._is_writable:
                why = "this server is read-only, the store is not changed"
            elif code in _TRANSACTIONS:
                why = "transactions are not supported by this server"
            else:
                why = "clients of this server send and consume, and change nothing else"
            return request.respond(ResponseCode.NO_PERMISSION, f"{what}: {why}")
        why = "POP is not supported" if code in _POP else "this server does not support it"
        return request.respond(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request code {code}: {why}"
        )
