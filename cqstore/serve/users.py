"""Users: the names and secrets of those who may send requests, and the check of a signature.

Source: RocketMQ ``AclClientRPCHook``, ``DefaultAuthenticationContextBuilder``,
``DefaultAuthenticationHandler``.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from cqstore.serve.codes import ResponseCode
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.store.errors import StoreConfigError, os_errors
from cqstore.store.files import read_file

_ACCESS_KEY, _SIGNATURE = "AccessKey", "Signature"
_UNIQUE_KEY_FLAG, _LAST_WITHOUT = "_UNIQUE_KEY_QUERY", 399
"""Clients up to 4.9.3, which has this number, add this field after they have signed."""
_MAX_FILE_BYTES = 1 << 20


class Users:
    """Names and secrets of users; any of them may send all requests."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = {name: secret.encode() for name, secret in secrets.items()}

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all users."""
        return frozenset(self._secrets)

    @classmethod
    def read(cls, file: Path) -> "Users":
        """Return the users in ``file``: a line ``NAME:SECRET`` for each, and lines after ``#``.

        Raises:
            StoreConfigError: a line is invalid, a name is repeated, or there are no users.
            StoreIOError: the file cannot be read.
        """
        with os_errors("read the users", file):
            text = read_file(file, _MAX_FILE_BYTES)
        found: dict[str, str] = {}
        for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
            name, colon, secret = line.strip().partition(":")
            if not name or name.startswith("#"):
                continue
            if not (colon and secret) or name in found:
                raise StoreConfigError(
                    f"invalid line {number} of {file}: expected NAME:SECRET, each name once"
                )
            found[name] = secret
        if not found:
            raise StoreConfigError(f"{file} names no user: expected lines NAME:SECRET")
        return cls(found)

    def check(self, request: Request) -> None:
        """Accept a request that a user has signed.

        Raises:
            RefusedRequestError: it has no signature, or not that of a user.
        """
        fields = request.command.fields
        name = fields.get(_ACCESS_KEY)
        if not name:
            raise _refused("username cannot be null.")
        secret = self._secrets.get(name)
        if secret is None:
            raise _refused(f"User:{name[:80]} is not found.")
        without = {_SIGNATURE}
        if request.command.version <= _LAST_WITHOUT:
            without.add(_UNIQUE_KEY_FLAG)
        content = "".join(fields[key] for key in sorted(fields) if key not in without)
        signed = hmac.digest(secret, content.encode("utf-8", "replace") + request.body, "sha1")
        given = fields.get(_SIGNATURE, "").encode("utf-8", "replace")
        if not hmac.compare_digest(b64encode(signed), given):
            raise _refused("check signature failed.")


def _refused(why: str) -> RefusedRequestError:
    return RefusedRequestError(ResponseCode.NO_PERMISSION, why)
