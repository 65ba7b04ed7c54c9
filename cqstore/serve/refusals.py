"""Responses to requests that are refused or fail."""

from cqstore.remoting.command import Command
from cqstore.serve.codes import ResponseCode
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import StoreError

_LOG = StoreLogger(__name__)


def refusal(request: Request, exc: RefusedRequestError | StoreError) -> Command:
    """Return the response to a request that was refused."""
    if isinstance(exc, RefusedRequestError):
        return request.respond(exc.code, exc.remark)
    return request.respond(ResponseCode.SYSTEM_ERROR, exc.reason)


def failure(request: Request) -> Command:
    """Return the response for a request that a fault of this program does not let it answer."""
    _LOG.exception("cannot answer request %d of %s", request.command.code, request.peer)
    return request.respond(ResponseCode.SYSTEM_ERROR, "internal error: see the server's log")
