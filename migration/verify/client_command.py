"""Runs the operator's own client once for each of two servers, and compares what it prints."""

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from cqstore.migration.verify.clients_report import CommandRun
from cqstore.serve.client_command import ClientCommand
from cqstore.store.errors import os_errors
from cqstore.store.files import reading

_ANY_ADDRESS = b"ADDRESS"
_MAX_LINES = 20
_MAX_COLUMNS = 300


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
    exits = {name: await client.run(sides[name], paths[name]) for name in sides}
    one, other = (Counter(_digests(paths[name], sides[name])) for name in sides)
    return CommandRun(
        command=command, equal=one == other and not any(exits.values()),
        source_exit=exits["source"], target_exit=exits["target"],
        source_lines=one.total(), target_lines=other.total(),
        only_source=list(_lines(paths["source"], source, one - other)),
        only_target=list(_lines(paths["target"], target, other - one)),
    )  # fmt: skip


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
