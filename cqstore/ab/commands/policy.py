"""``cqstore ab policy``: what classes of topics write, before and after a policy."""

from typing import Annotated

import typer

from cqstore.ab.live.policy import policy_cost, written_notes
from cqstore.cli.limited import BoundedAnswer
from cqstore.cli.options import ConfigFile, Dir, Format, bounded, note, open_store
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.store.errors import StoreConfigError
from cqstore.store.service.opening.components import components_of

Hottest = Annotated[
    int, typer.Option(metavar="N", min=0, help="Number of busiest topics to list one by one.")
]


def policy_command(
    root: Dir,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topics",
            metavar="TOPICS",
            help="Class of topics, written like doubleWriteTopics: names separated by semicolons,"
            " * at the end of a name as wildcard. May be repeated; the first match counts.",
        ),
    ] = None,
    hours: Annotated[
        float,
        typer.Option(
            metavar="N",
            min=0.01,
            callback=bounded,
            help="How far to look back from the newest record, in hours.",
        ),
    ] = 1.0,
    hottest: Hottest = 10,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Count what each class of topics wrote in the last hour, from the log. Changes nothing.

    The counts show how much another backend receives for each class. Use them before and after you
    change doubleWriteTopics or readTopics. Light, retry, dead-letter and all other topics are
    always listed. The last hour ends at the newest record.

    Examples:
        cqstore ab policy DIR --topics 'orders*' --hottest 20
        cqstore ab policy DIR --hours 24 --config broker.conf
    """
    if any(not each.strip(" ;*") and each.strip() != "*" for each in topics or ()):
        raise StoreConfigError("--topics: a class must name at least one topic")
    with (
        progress("counting") as tick,
        open_store(root, config, None, None) as store,
    ):
        tick.measure(store.max_phy_offset())
        cost = policy_cost(store, topics or (), hours=hours, hottest=hottest, progress=tick)
    bounded = BoundedAnswer()
    if 0 < hottest < cost.topics:
        bounded.note_more(hottest, "topics", "--hottest")
    output(kind).rows(cost.rows(), bounded.has_more)
    note(f"{cost.units:,} units in {cost.seconds:,.0f} s")
    for written_note in written_notes(components_of(store).paths):
        note(written_note)
