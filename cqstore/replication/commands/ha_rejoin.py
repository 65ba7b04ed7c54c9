"""The verb of ``cqstore ha rejoin``."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import ConfigFile, Format, Yes, check_is_there, note, read_config
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.replication.commands.ha_check import Last, Spool, place
from cqstore.replication.ha.ha_check import CheckScope, checked
from cqstore.replication.ha.rejoin import Rejoin, plan_rejoin
from cqstore.replication.ha.rejoin import rejoin as cut_off
from cqstore.store.journals.store_lock import refuse_if_open
from cqstore.store.paths import StorePaths

_SHOWN = 20
Former = Annotated[
    Path, typer.Argument(metavar="FORMER", help="The store of the former master; not open.")
]
New = Annotated[
    str,
    typer.Argument(metavar="NEW", help="The new master: its folder, or HOST:PORT while it runs."),
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
    """Cut off FORMER what NEW does not have, so that it can follow NEW; shown first.

    The logs are compared as by cqstore ha check. With --yes FORMER's log ends where both are the
    same: what lies behind is kept below FORMER/cqstore/cut, and queues, index and checkpoint
    follow. NEW is not changed. Refused where anything is in doubt: no record in common, damage, log
    files of other sizes, a store that is open. Consumer offsets behind the cut are reported, and
    not changed.
    """
    check_is_there(former)
    refuse_if_open(StorePaths(former))
    settings, other, how_much = (
        read_config(config, former),
        place(new, config),
        CheckScope(last, spool, queues=False),
    )
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
    """Print what was cut, or would be."""
    output(kind).record({
        "former": str(former), "commonEnd": found.phy_offset, "needed": found.needed,
        "done": found.done, **facts, "saved": [str(each.path) for each in found.saved],
        "offsetsBehindTheCut": [each.as_json() for each in found.beyond],
    })  # fmt: skip
    if not found.needed:
        note(f"{former}: nothing to cut: all of it up to {found.phy_offset} is the new master's")
    elif not found.done:
        note(f"{former}: would be cut at {found.phy_offset} (--yes does it)")
    report_offsets_beyond(found)


def report_offsets_beyond(found: Rejoin) -> None:
    """Say which offsets of consumers lie behind a cut."""
    for each in found.beyond[:_SHOWN]:
        note(
            f"group {each.group}: offset {each.offset} of queue {each.queue.queue_id} of"
            f" {each.queue.topic!r} lies behind its end {each.queue_end}"
        )
    if len(found.beyond) > _SHOWN:
        note(f"and {len(found.beyond) - _SHOWN} more (--output json)")
    for sentence in found.unread:
        note(sentence)
