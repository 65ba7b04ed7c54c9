"""The command ``cqstore ha rejoin``."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import ConfigFile, Format, Yes, check_is_there, note
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.replication.commands.ha_check import Last, Spool, place, side_configs
from cqstore.replication.ha.ha_check import CheckScope, checked
from cqstore.replication.ha.rejoin import Rejoin, plan_rejoin
from cqstore.replication.ha.rejoin import rejoin as cut_off
from cqstore.store.journals.store_lock import refuse_if_open
from cqstore.store.paths import StorePaths

_SHOWN = 20
Former = Annotated[
    Path,
    typer.Argument(metavar="FORMER", help="Store of the former master, which must be stopped."),
]
New = Annotated[
    str,
    typer.Argument(
        metavar="NEW",
        help="New master: folder of its store, or HOST:PORT (haListenPort) while it runs.",
    ),
]


def rejoin(
    former: Former,
    new: New,
    *,
    yes: Yes = False,
    last: Last = None,
    spool: Spool = None,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Cut records from FORMER that NEW does not have, so that it can follow NEW.

    Compares both logs like cqstore ha check and shows the cut. With --yes, ends FORMER's log where
    the common part ends and truncates queues, index and checkpoint to match. The records that are
    cut are kept below FORMER/cqstore/cut. NEW is not changed. Consumer offsets after the cut are
    reported but not changed.

    The command refuses if the logs have no record in common, a log is damaged, the log files have
    different sizes, or a store is open.

    Examples:
        cqstore ha rejoin DIR broker-b:10912
        cqstore ha rejoin DIR broker-b:10912 --yes
    """
    check_is_there(former)
    refuse_if_open(StorePaths(former))
    other, how_much = place(new, config), CheckScope(last, spool, queues=False)
    settings = side_configs(config, former, other)
    with progress("comparing") as tick:
        if yes:
            found = cut_off(former, other, settings, how_much, tick)
            facts: dict[str, object] = {}
        else:
            with checked(former, other, settings, how_much, tick) as seen:
                found = plan_rejoin(seen)
                tail = seen.tails[0].as_json()
                facts = {"cut": tail if found.needed else None}
    _show(former, found, facts, kind)


def _show(former: Path, found: Rejoin, facts: dict[str, object], kind: OutputFormat) -> None:
    """Print what was cut, or what would be cut."""
    output(kind).record({
        "former": str(former), "commonEnd": found.phy_offset, "needed": found.needed,
        "done": found.done, **facts, "saved": [str(each.path) for each in found.saved],
        "offsetsBehindTheCut": [each.as_json() for each in found.beyond],
    })  # fmt: skip
    if not found.needed:
        note(
            f"{former}: nothing to cut: the log equals the new master's up to its end at"
            f" {found.phy_offset}"
        )
    elif not found.done:
        note(f"{former}: would be cut at {found.phy_offset}. Repeat with --yes to cut it")
    report_offsets_beyond(found)


def report_offsets_beyond(found: Rejoin) -> None:
    """Print the consumer offsets that are beyond the cut."""
    for each in found.beyond[:_SHOWN]:
        note(
            f"group {each.group}: offset {each.offset} in queue {each.queue.queue_id} of topic"
            f" {each.queue.topic!r} is after the queue's end {each.queue_end}"
        )
    if len(found.beyond) > _SHOWN:
        note(f"and {len(found.beyond) - _SHOWN} more (--output json lists all)")
    for sentence in found.unread:
        note(sentence)
