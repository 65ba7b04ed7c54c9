"""Runs the operator's own client against a server of this machine."""

import asyncio
import os
import shlex
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cqstore.store.errors import StoreConfigError, StoreIOError, os_errors

ADDRESS = "{address}"
"""Replaced by the address of the server in the words of a command."""
NAMESRV_ADDR = "NAMESRV_ADDR"
"""RocketMQ's environment variable for the address of the name server."""


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
    """Maximum time of each run."""

    async def run(self, address: str, output: Path) -> int:
        """Run the command for the server at ``address``; return its exit code.

        Its standard output is written to ``output``. At the end, and if this is cancelled, the
        command and all processes of its process group are killed.

        Raises:
            StoreConfigError: the command is invalid.
            StoreIOError: it cannot be started, does not end in time, or its output cannot be
                written.
        """
        words = [each.replace(ADDRESS, address) for each in command_words(self.command)]
        with (
            os_errors("write the output of the client", output), output.open("wb") as file,
            os_errors("run the client", Path(words[0])),
        ):  # fmt: skip
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=file,
                env=os.environ | {NAMESRV_ADDR: address}, start_new_session=True,
            )  # fmt: skip
        try:
            async with asyncio.timeout(self.seconds):
                return await process.wait()
        except TimeoutError as exc:
            raise StoreIOError(
                f"the client has not ended after {self.seconds:g} s: {self.command}"
            ) from exc
        finally:
            with suppress(ProcessLookupError):  # none is left
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
