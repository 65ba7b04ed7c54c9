"""Requests of tools for users and ACLs.

With ``--users`` the users are listed, without their secrets. There are never policies: requests
for ACLs are answered as by a broker without them, and so are those for users if there are none.

Source: RocketMQ ``AdminBrokerProcessor``, ``LocalAuthenticationMetadataProvider``.
"""

from typing import NoReturn

from cqstore.remoting.body import json_body
from cqstore.remoting.command import Command
from cqstore.serve.codes import RequestCode, ResponseCode
from cqstore.serve.consumer_requests import Handler
from cqstore.serve.pulls import ConsumerLink
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.serve.users import Users


class UserRequests:
    """Answers requests for users and ACLs, in the server's event loop."""

    def __init__(self, users: Users | None) -> None:
        """``users``: those who sign requests; ``None``: signatures are ignored."""
        self._users = users

    def handlers(self) -> dict[int, Handler]:
        """Return the functions that answer, by request code."""
        return {
            RequestCode.AUTH_GET_USER: self.user, RequestCode.AUTH_LIST_USER: self.users,
            RequestCode.AUTH_GET_ACL: self.acl, RequestCode.AUTH_LIST_ACL: self.acls,
        }  # fmt: skip

    def user(self, request: Request, _link: ConsumerLink) -> Command:
        """Return one user; an empty response if the user does not exist.

        Raises:
            RefusedRequestError: the name is blank, or there are no users.
        """
        name = request.text("username", "")
        if not name.strip():
            raise RefusedRequestError(ResponseCode.INVALID_PARAMETER, "The username is blank")
        found = [each for each in self._known().names if each == name]
        return request.respond(body=json_body(_row(name)) if found else b"")

    def users(self, request: Request, _link: ConsumerLink) -> Command:
        """Return the users whose names contain a text, in the order of their bytes.

        Raises:
            RefusedRequestError: there are no users.
        """
        part = request.text("filter", "")
        names = sorted(self._known().names, key=str.encode)
        rows = [_row(each) for each in names if not part.strip() or part in each]
        return request.respond(body=json_body(rows) if rows else b"")

    def acl(self, request: Request, _link: ConsumerLink) -> Command:
        """Refuse: no user has policies.

        Raises:
            RefusedRequestError: always.
        """
        kind, _, name = request.text("subject", "").partition(":")
        if self._users is not None and kind == "User" and name not in self._users.names:
            raise RefusedRequestError(ResponseCode.NO_PERMISSION, "The subject is not exist.")
        _refuse()

    def acls(self, _request: Request, _link: ConsumerLink) -> Command:
        """Refuse: there are no policies.

        Raises:
            RefusedRequestError: always.
        """
        _refuse("The authorizationMetadataProvider is not configured")

    def _known(self) -> Users:
        if self._users is None:
            _refuse()
        return self._users


def _row(name: str) -> dict[str, object]:
    """Return a user as a broker lists it, but without ``password``, which is the secret."""
    return {"userStatus": "enable", "userType": "Normal", "username": name}


def _refuse(why: str = "An system error occurred, please try again later.") -> NoReturn:
    raise RefusedRequestError(ResponseCode.SYSTEM_ERROR, why)
