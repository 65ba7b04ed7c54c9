"""Runs the operator's own client once for each of two servers, and compares what it prints."""

import asyncio
import os
import shlex
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from cqstore.migration.verify.clients_report import CommandRun
from cqstore.store.errors import StoreConfigError, StoreIOError, os_errors
from cqstore.store.files import reading

ADDRESS = "{address}"
"""Replaced by the address of the server in the words of a command."""
NAMESRV_ADDR = "NAMESRV_ADDR"
"""RocketMQ's environment variable for the address of the name server."""
_ANY_ADDRESS = b"ADDRESS"
_MAX_LINES = 20
_MAX_COLUMNS = 300


def command_words(command: str) -> list[str]:
    """Return the words of a command, split as a shell splits them.

    Raises:
        StoreConfigError: there are none, or a quote is not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as exc:
        raise StoreConfigError(f"invalid command {command!r}: {exc}") from exc
    if not words:
        raise StoreConfigError("the command of the client is empty")
    return words


class ClientCommand(NamedTuple):
    """The operator's own client."""

    command: str
    seconds: float
    """Maximum time of each of the two runs."""


async def run_client(client: ClientCommand, source: str, target: str, folder: Path) -> CommandRun:
    """Run a client for the servers at ``source`` and ``target``; compare the printed lines.

    The order of lines does not count: consumers receive several queues in any order. Outputs are in
    ``folder``: ``source.out``, ``target.out``.

    Raises:
        StoreConfigError: the command is invalid.
        StoreIOError: it cannot be started, does not end in time, or its output cannot be written.
    """
    command, sides = client.command, {"source": source, "target": target}
    paths = {name: folder / f"{name}.out" for name in sides}
    exits = {name: await _run(client, sides[name], paths[name]) for name in sides}
    one, other = (Counter(_digests(paths[name], sides[name])) for name in sides)
    return CommandRun(
        command=command, equal=one == other and not any(exits.values()),
        source_exit=exits["source"], target_exit=exits["target"],
        source_lines=one.total(), target_lines=other.total(),
        only_source=list(_lines(paths["source"], source, one - other)),
        only_target=list(_lines(paths["target"], target, other - one)),
    )  # fmt: skip


async def _run(client: ClientCommand, address: str, path: Path) -> int:
    """Run the command, its output in ``path``; return its exit code."""
    words = command_words(client.command)
    with os_errors("run the client", path), path.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(each.replace(ADDRESS, address) for each in words),
            stdin=asyncio.subprocess.DEVNULL, stdout=output,
            env=os.environ | {NAMESRV_ADDR: address},
        )  # fmt: skip
    try:
        async with asyncio.timeout(client.seconds):
            return await process.wait()
    except TimeoutError as exc:
        raise StoreIOError(
            f"the client has not ended after {client.seconds:g} s: {client.command}"
        ) from exc
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _digests(path: Path, address: str) -> Iterator[bytes]:
    """Yield the digest of each line, without the address of the server."""
    with os_errors("read the output of the client", path), reading(path) as output:
        for line in output:
            yield _digest(line, address)


def _digest(line: bytes, address: str) -> bytes:
    return blake2b(line.replace(address.encode(), _ANY_ADDRESS), digest_size=16).digest()


def _lines(path: Path, address: str, wanted: "Counter[bytes]") -> Iterator[str]:
    """Yield the first lines with the digests that are ``wanted``."""
    left, shown = wanted.copy(), 0
    with os_errors("read the output of the client", path), reading(path) as output:
        for line in output:
            digest = _digest(line, address)
            if left[digest] <= 0 or shown == _MAX_LINES:
                continue
            left[digest] -= 1
            shown += 1
            yield line.decode(errors="replace").rstrip()[:_MAX_COLUMNS]
