"""PutTasks: the requests whose messages wait for the disk.

Under ``SYNC_FLUSH`` a message is acknowledged after it is on disk. Meanwhile other requests are
answered, and one sync serves all messages that wait.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from cqstore.remoting.command import Command
from cqstore.serve.codes import ResponseCode
from cqstore.serve.limits import Quota, ServeLimits
from cqstore.serve.pulls import ConsumerLink
from cqstore.serve.refusals import failure, refusal
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.store.errors import StoreError

_OVERHEAD = 1024
"""Approximate bytes of a task and a message without its body."""


class PutTasks:
    """The puts of one server that have not finished. In its event loop."""

    def __init__(self, limits: ServeLimits) -> None:
        self._quota = Quota(limits.put_bytes, limits.put_bytes_per_address)
        self._running: set[asyncio.Task[None]] = set()
        self._is_ending = False

    def check(self, request: Request, link: ConsumerLink) -> None:
        """Refuse a request before its message is put.

        Raises:
            RefusedRequestError: the server is ending, or the messages that wait have too many
                bytes.
        """
        if self._is_ending:
            raise RefusedRequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "the server is ending")
        if not self._quota.has_room(link.address, _size(request)):
            raise RefusedRequestError(
                ResponseCode.SYSTEM_BUSY, "too many bytes of messages are waiting for the disk"
            )

    def start(
        self, request: Request, link: ConsumerLink, work: Coroutine[Any, Any, Command]
    ) -> None:
        """Respond with the result of ``work``."""
        self._quota.add(link.address, _size(request))
        task = asyncio.get_running_loop().create_task(self._answer(request, link, work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def drain(self) -> None:
        """Refuse further messages, and wait until those that were put are acknowledged."""
        self._is_ending = True
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _answer(
        self, request: Request, link: ConsumerLink, work: Coroutine[Any, Any, Command]
    ) -> None:
        try:
            response = await work
        except (RefusedRequestError, StoreError) as exc:
            response = refusal(request, exc)
        except Exception:  # noqa: BLE001 - a fault of this program costs one response
            response = failure(request)
        finally:
            self._quota.add(link.address, -_size(request))
        link.respond(request, response)


def _size(request: Request) -> int:
    return len(request.body) + _OVERHEAD
