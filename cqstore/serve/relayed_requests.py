"""Requests of tools that a connected consumer answers; the server passes them on.

Source: RocketMQ ``AdminBrokerProcessor.callConsumer``.
"""

from collections.abc import Callable, Coroutine

from cqstore.remoting.command import Command
from cqstore.serve.client_calls import ClientCalls
from cqstore.serve.codes import RequestCode, ResponseCode
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.serve.served_broker import ServedBroker

RelayHandler = Callable[[Request], Coroutine[object, object, Command]]
"""Answers a request in the event loop, after a while."""


class RelayedRequests:
    """Passes requests on to consumers, and their responses back."""

    def __init__(self, broker: ServedBroker, calls: ClientCalls) -> None:
        self._broker = broker
        self._calls = calls

    def handlers(self) -> dict[int, RelayHandler]:
        """Return the functions that answer, by request code."""
        return {RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info}

    async def running_info(self, request: Request) -> Command:
        """Return what a consumer reports about itself: its queues, offsets and threads.

        Raises:
            RefusedRequestError: the consumer is not connected, or does not respond in time.
        """
        name, client_id = request.name("consumerGroup"), request.name("clientId")
        group = self._broker.groups.get(name)
        found = [] if group is None else list(group.consumers.values())
        link = next((each.link for each in found if each.client_id == client_id), None)
        if link is None:
            raise RefusedRequestError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{name}> <{client_id}> not online"
            )
        command, who = request.command, f"consumer <{name}> <{client_id}>"
        try:
            response = await self._calls.call(link, command.code, command.fields)
        except TimeoutError as exc:
            raise RefusedRequestError(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"{who} Timeout: no response"
            ) from exc
        except ConnectionError as exc:
            raise RefusedRequestError(
                ResponseCode.SYSTEM_ERROR, f"invoke {who} Exception: {exc}"
            ) from exc
        if response.skipped:
            raise RefusedRequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the response of {who} has {response.skipped} bytes, more than this server keeps",
            )
        return request.respond(response.code, response.remark, dict(response.fields), response.body)
