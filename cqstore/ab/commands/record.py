"""``cqstore ab record``: a trace of what a running broker does."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from cqstore.ab.commands.report import check_place
from cqstore.ab.record.broker_recording import BrokerRecording, RecordingPlan
from cqstore.ab.record.missing import Ending
from cqstore.ab.record.names import AnonymousNames, Names
from cqstore.ab.trace.trace import MAX_TRACE_BYTES
from cqstore.cli.duration import seconds_of
from cqstore.cli.options import Format, bounded, java_long, note
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.path_marks import OutputPath
from cqstore.cli.progress import progress
from cqstore.replication.address import address
from cqstore.replication.commands.follow import tls_of
from cqstore.replication.endpoint import find_host
from cqstore.replication.follow.master_port import MasterPort
from cqstore.replication.follow_options import Master, TlsCa, TlsCert
from cqstore.replication.signals import ENDED_BY_SIGNAL, ended_by
from cqstore.store.errors import StoreError

EXIT_INCOMPLETE = 1
For = Annotated[
    str, typer.Option("--for", metavar="TIME", help="Duration, such as 90s, 10m, 2h or 1d.")
]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="HOST:PORT",
        help="Address (listenPort) of the same master, to record pulls from its consumer offsets.",
    ),
]
Poll = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", min=0.1, callback=bounded,
        help="Time between two requests for consumer offsets.",
    ),
]  # fmt: skip
Anonymise = Annotated[
    bool,
    typer.Option("--anonymise", help="Replace names of topics and groups, and tags, by digests."),
]
MaxBytes = Annotated[
    int,
    typer.Option(metavar="N", min=1, callback=java_long, help="Maximum size of the trace."),
]


def record_command(
    master: Master,
    target: Annotated[
        Path, typer.Argument(metavar="TRACE", help="New file to write."), OutputPath()
    ],
    *,
    duration: For = "10m",
    broker: Broker = None,
    poll: Poll = 5.0,
    anonymise: Anonymise = False,
    max_bytes: MaxBytes = MAX_TRACE_BYTES,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Record the puts and pulls of the running master at HOST:PORT in TRACE.

    PORT is haListenPort (10912 in RocketMQ). Puts are read from the log that the master replicates;
    no byte is acknowledged and no message is stored. Ctrl-C ends the recording with a complete
    file. Exit code 1 if operations are missing; notes and the last line of TRACE name them.

    Examples:
        cqstore ab record broker-a:10912 trace.jsonl --broker broker-a:10911 --for 10m
        cqstore ab record broker-a:10912 trace.jsonl --broker broker-a:10911 --anonymise
    """
    place = address(master)
    polled = None if broker is None else address(broker, "--broker")
    seconds = seconds_of(duration, "--for")
    check_place(target, "trace", "TRACE")
    port = MasterPort(*place, tls_of(tls_ca, tls_cert))
    find_host(*place)
    if polled is not None:
        find_host(*polled, "the broker")
    else:
        note("without --broker, only puts are recorded")
    plan = RecordingPlan(
        port, polled, target, seconds, max_bytes, poll, AnonymousNames() if anonymise else Names()
    )
    with progress("recording", round(seconds), "s") as tick:
        ended, ending, facts = asyncio.run(_recorded(plan, tick))
    output(kind).record(facts)
    missing = list(ending.missing())
    for sentence in [*missing, *ending.limits()]:
        note(sentence)
    if ended:
        raise typer.Exit(ENDED_BY_SIGNAL + ended)
    if missing:
        raise typer.Exit(EXIT_INCOMPLETE)


async def _recorded(
    plan: RecordingPlan, on_second: Callable[[int], object]
) -> tuple[signal.Signals | None, Ending, dict[str, object]]:
    """Record; return the signal that ended it if there was one, how it ended, and its size.

    Raises:
        StoreError: an address is wrong, the file cannot be written, or the log is damaged.
    """
    async with BrokerRecording(plan, note) as recording:
        await recording.begin()
        try:
            ended = await ended_by(recording.run(on_second))
        except BaseException:
            with suppress(StoreError):  # the first error is reported
                recording.end()
            raise
        return ended, recording.end(), recording.facts()
