"""What each side costs for the same load of clients: one round per run of the client.

Each cost is a workload, and so is judged by itself, as in ``follow_costs``.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from cqstore.ab.judging.words import count_text, percent_text
from cqstore.ab.live.follow_costs import cost_round
from cqstore.ab.live.server_worker import ServedLoad
from cqstore.ab.measuring.measures import disturbance
from cqstore.ab.results.result import Answers, Difference, WorkloadFigures

RUN = "client-run"
WHAT = {
    RUN: "Send or receive a message: the time of the client's run, its start included.",
    "cpu": "CPU time of the side's server per message that was sent or received.",
    "memory": "Largest proportional set size of the side's server.",
    "written": "Bytes written per message that was sent: log, queues, index and tables.",
    "disk": "Disk space of the queues after the run, per message that was sent.",
}
MAX_UNEQUAL = 0.01
"""Maximum share by which the loads of two sides may differ in a round."""
_MAX_SHOWN = 5


class ClientTurn(NamedTuple):
    """One run of the client with the server of one side."""

    number: int
    """Number of the round."""
    side: str
    seconds: float
    """Time of the client's run."""
    load: ServedLoad
    steal: float
    others: float

    def fields(self, cost: str) -> Mapping[str, object]:
        """Return the fields of a round for one cost."""
        load = self.load
        of_cost: dict[str, dict[str, object]] = {
            RUN: {"operations": load.messages, "items": load.messages, "seconds": self.seconds},
            "cpu": {"operations": load.messages, "cpu_seconds": load.cpu_seconds},
            "memory": {"pss_bytes": load.pss_bytes},
            "written": {
                "items": load.messages_in, "written_bytes": load.written_bytes,
                "read_bytes": load.read_bytes, "backend_written": load.backend_written,
            },
            "disk": {"items": load.messages_in, "disk_bytes": load.disk_bytes},
        }  # fmt: skip
        return of_cost[cost] | {
            "steal": self.steal, "others": self.others,
            "disturbed": disturbance(self.steal, self.others),
        }  # fmt: skip

    @property
    def load_text(self) -> str:
        """Return the messages that the client sent and received."""
        return (
            f"{count_text(self.load.messages_in, 'message')} sent,"
            f" {self.load.messages_out:,} received"
        )


def workloads(turns: Sequence[ClientTurn], reference: str) -> Iterator[WorkloadFigures]:
    """Yield the figures of each cost; the loads are compared in the first one.

    ``turns``: in the order in which they ran; ``reference``: name of the first side.
    """
    for cost, what in WHAT.items():
        yield WorkloadFigures(
            name=cost, what=what, item="messages",
            rounds=[
                cost_round(each.number, at, each.side, each.fields(cost))
                for at, each in enumerate(turns)
            ],
            answers=compared_loads(turns, reference) if cost == RUN else Answers(),
        )  # fmt: skip


def compared_loads(turns: Sequence[ClientTurn], reference: str) -> Answers:
    """Compare the load of each side with that of ``reference`` in the same round."""
    answers = Answers()
    for first, other in _pairs(turns, reference):
        if other is first:
            answers.compared += first.load.messages
        elif _deviation(first, other) > MAX_UNEQUAL:
            answers.different += 1
            if len(answers.first) < _MAX_SHOWN:
                texts = {each.side: each.load_text for each in (first, other)}
                where: dict[str, int | str | float | bool | None] = {"round": other.number}
                answers.first.append(Difference(workload=RUN, operation=where, answers=texts))
    return answers


def load_limits(turns: Sequence[ClientTurn], reference: str) -> Iterator[str]:
    """Yield sentences about what clients did in these runs."""
    yield f"Load of the first run: {turns[0].load_text}."
    found = [_deviation(*pair) for pair in _pairs(turns, reference)]
    if unequal := [each for each in found if each]:
        yield (
            f"The load was not exactly the same: in {count_text(len(unequal), 'run')} it differed"
            f" from the reference's, by up to {percent_text(max(unequal))}."
        )
    if refused := [each for each in turns if each.load.refused]:
        total = sum(each.load.refused for each in refused)
        yield (
            f"{count_text(total, 'send')} of clients in {count_text(len(refused), 'run')} were"
            " refused, as the client saw."
        )


def _pairs(turns: Sequence[ClientTurn], reference: str) -> Iterator[tuple[ClientTurn, ClientTurn]]:
    """Yield each turn after the turn of the reference in its round, which is in a pair, too."""
    for _, group in groupby(turns, lambda each: each.number):
        found = list(group)
        first = next(each for each in found if each.side == reference)
        yield from ((first, each) for each in found)


def _deviation(one: ClientTurn, other: ClientTurn) -> float:
    """Return the larger deviation of two loads, as a share: of messages sent, or received."""
    counts = (
        (one.load.messages_in, other.load.messages_in),
        (one.load.messages_out, other.load.messages_out),
    )
    return max(1 - min(pair) / max(pair) if any(pair) else 0.0 for pair in counts)
