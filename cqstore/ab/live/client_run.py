"""ClientRun: the operator's own client, run for a server of each side in turn.

Each run has a new server process and an empty store, so that all runs have the same start.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from cqstore.ab.live.client_costs import ClientTurn, load_limits, workloads
from cqstore.ab.live.server_worker import ServedLoad
from cqstore.ab.measuring.machine_facts import this_machine
from cqstore.ab.measuring.measures import MachineTimes
from cqstore.ab.measuring.turn_order import mirrored_orders
from cqstore.ab.results.result import Cache, Footprint, Method, Result, Shape, Side
from cqstore.ab.sides.side import SideSpec
from cqstore.ab.sides.side_process import SideProcess, renew
from cqstore.ab.stores.ab_workspace import ScratchFolder
from cqstore.serve.client_command import ClientCommand
from cqstore.serve.store_writer import WriteSettings
from cqstore.serve.writable_server import HOST
from cqstore.store.errors import StoreError, StoreIOError, os_errors

_WORKER = "cqstore.ab.live.server_worker"
_SAMPLE_SECONDS = 0.5
_SHOWN_BYTES = 500
_SEED = 1
_WARM_UP = (
    "In each round the client runs once for each side, in random order or in the reverse order of"
    " the round before. Each run has a new server process and an empty store. The first round does"
    " not count."
)
_LIMITS = (
    "Each run begins with an empty store: a large one has other caches and compactions.",
    "Clients and servers share this machine: nothing is sent over a network.",
)


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """Which client to run, for which sides, and how often."""

    client: ClientCommand
    sides: Sequence[SideSpec]
    folder: Path
    rounds: int
    settings: WriteSettings
    matters: Sequence[str] = ()
    command: Sequence[str] = ()


class ClientRun:
    """One comparison: ``measure``, once."""

    def __init__(self, plan: ClientPlan) -> None:
        self._plan = plan
        self._reference = plan.sides[0].name
        self._began = time.monotonic()
        self._made = datetime.now(UTC).isoformat(timespec="seconds")
        self._sides: list[SideProcess] = []
        self._turns: list[ClientTurn] = []
        self._described: dict[str, Side] = {}
        self._shape: Shape
        self._versions: dict[str, str] = {}

    def measure(self, on_stage: Callable[[str, float], object]) -> Result:
        """Run all rounds; return the result, remove the folder.

        Raises:
            StoreError: a side or a run of the client failed; the message has the reason.
        """
        plan, draw = self._plan, np.random.default_rng(_SEED)
        with ScratchFolder(plan.folder):
            try:
                for number, spec in enumerate(plan.sides):
                    root = str(plan.folder / f"side-{number}")
                    self._sides.append(SideProcess(spec, root, {}, _WORKER))
                orders = mirrored_orders(self._sides, draw)
                for number in range(plan.rounds):
                    if number:
                        renew(self._sides)
                    for side in next(orders):
                        share = len(self._turns) / (plan.rounds * len(self._sides))
                        on_stage(f"round {number + 1}: {side.spec.name}", share)
                        self._turn(number, side)
            finally:
                for side in self._sides:
                    side.stop()
            return self._result()

    def _turn(self, number: int, side: SideProcess) -> None:
        """Run the client for one side, and remove the store.

        Raises:
            StoreError: the run failed.
        """
        plan = self._plan
        address = f"{HOST}:{side.request('serve', settings=asdict(plan.settings))}"
        pids = [each.pid for each in self._sides]
        before = MachineTimes.now(pids)
        seconds = asyncio.run(self._run(side, address))
        steal, others = MachineTimes.now(pids).since(before)
        load = ServedLoad.model_validate(side.request("stop_serving"))
        if not load.messages:
            raise StoreError(
                f"the client sent and received no message at the server of side {side.spec.name}:"
                f" {plan.client.command}"
            )
        self._turns.append(ClientTurn(number, side.spec.name, seconds, load, steal, others))
        if number == plan.rounds - 1:
            self._describe(side)
        shutil.rmtree(side.root)

    async def _run(self, side: SideProcess, address: str) -> float:
        """Run the client for the server at ``address``; return the seconds that it took.

        Raises:
            StoreError: the server ended, or the client failed, or has not connected.
        """
        output = self._plan.folder / "client.out"
        client = asyncio.create_task(self._timed(address, output))
        try:
            while not client.done():
                await asyncio.to_thread(side.request, "observe")
                await asyncio.wait([client], timeout=_SAMPLE_SECONDS)
        finally:
            client.cancel()
            await asyncio.gather(client, return_exceptions=True)
        where = "" if side.request("observe") else f"; it has not connected to {address}"
        try:
            seconds, code = client.result()
        except StoreIOError as exc:
            if exc.path is not None:  # it was not started
                raise
            raise StoreIOError(f"{exc.reason}{where}") from exc
        if code:
            raise StoreError(
                f"the client of side {side.spec.name} ended with exit code {code}:"
                f" {self._plan.client.command}{where}{_end_of(output)}"
            )
        if where:
            raise StoreError(
                f"the client has ended{where}, the address for {{address}} and NAMESRV_ADDR:"
                f" {self._plan.client.command}"
            )
        return seconds

    async def _timed(self, address: str, output: Path) -> tuple[float, int]:
        began = time.perf_counter()
        code = await self._plan.client.run(address, output)
        return time.perf_counter() - began, code

    def _describe(self, side: SideProcess) -> None:
        """Open the store of a side again, for its resources and the shape of its data."""
        footprint = Footprint.model_validate(side.request("footprint"))
        name = side.spec.name
        self._described[name] = side.spec.described("one log each", footprint=footprint)
        if name == self._reference:
            shape = Shape.model_validate(side.request("shape"))
            self._shape = shape.model_copy(update={"root": self._plan.client.command})
        if side.spec.twin_of is None:
            versions = side.request("versions").items()
            self._versions |= {f"{name}: {key}": text for key, text in versions}
        side.request("close")

    def _result(self) -> Result:
        plan = self._plan
        return Result(
            kind="clients", made=self._made, command=list(plan.command),
            machine=this_machine(plan.folder, self._versions), store=self._shape,
            sides=[self._described[spec.name] for spec in plan.sides],
            method=Method.today(
                seed=_SEED, rounds=plan.rounds, warm_up=_WARM_UP, cache=Cache.WARM,
                new_processes=True,
            ),
            workloads=list(workloads(self._turns, self._reference)), matters=list(plan.matters),
            not_measured=[*load_limits(self._turns, self._reference), *_LIMITS],
            seconds=time.monotonic() - self._began,
        )  # fmt: skip


def _end_of(output: Path) -> str:
    """Return the end of what the client has printed, for a message; empty if it is empty."""
    with os_errors("read the output of the client", output), output.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - _SHOWN_BYTES, 0))
        text = file.read().decode(errors="replace").strip()
    return f"; its output ends with {text!r}" if text else ""
