"""Why a place in a network cannot be reached, in words; asyncio's own are not shown."""

import asyncio
import errno
import os
import socket

import pytest

from cqstore.replication.endpoint import endpoint, find_host, reason_of
from cqstore.replication.errors import WireError
from cqstore.store.errors import StoreIOError

SEVERAL = OSError(
    "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), "
    "[Errno 111] Connect call failed ('127.0.0.1', 1)"
)
"""What asyncio raises where a name has two addresses."""


def test_a_refused_connection_says_that_nothing_listens() -> None:
    said = "connection refused (nothing is listening on this port)"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    with pytest.raises(OSError, match="Connect call failed") as caught:
        asyncio.run(asyncio.open_connection("127.0.0.1", port))
    assert reason_of(caught.value) == reason_of(SEVERAL) == said
    assert reason_of(ConnectionRefusedError(errno.ECONNREFUSED, "refused")) == said


def test_other_faults_are_as_the_system_names_them() -> None:
    unreachable = OSError(errno.EHOSTUNREACH, "Connect call failed ('10.0.0.1', 1)")
    assert reason_of(unreachable) == os.strerror(errno.EHOSTUNREACH)
    assert reason_of(ConnectionResetError(errno.ECONNRESET, "reset by peer")) == "reset by peer"
    assert reason_of(TimeoutError()) == "timed out"
    assert reason_of(OSError("the master is fenced")) == "the master is fenced"
    assert "found 3" in reason_of(WireError("no frame", expected=2, got=3))


def test_an_ipv6_address_is_in_brackets() -> None:
    assert [endpoint("::1", 5), endpoint("broker", 5)] == ["[::1]:5", "broker:5"]


def test_a_name_that_no_host_has_is_refused() -> None:
    find_host("127.0.0.1", 1)
    with pytest.raises(
        StoreIOError, match=r"cannot resolve the host name 'no\.such\.invalid' of the broker"
    ):
        find_host("no.such.invalid", 1, "the broker")
