"""The verb ``cqstore dlq``."""

from typing import Annotated

import typer

from cqstore.broker.dlq.dead_letters import Again, PutAgain, dlq_topic
from cqstore.broker.dlq.letter_rows import COLUMNS, LettersBy, RetryLags, StoreLetters, letter_rows
from cqstore.broker.groups.group_lag import near_groups
from cqstore.broker.metadata.model import Form
from cqstore.broker.one_form import BrokerForm, end_with_faults
from cqstore.broker.ranking import ranked
from cqstore.cli.limited import limited
from cqstore.cli.message_files.message_output import MessageOutput
from cqstore.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    java_long,
    note,
    open_store,
    refuse_beside,
)
from cqstore.cli.output import RowFormat, output
from cqstore.cli.selection import Begin, End, Grep, Key, Pattern, SelectedReads, Selection, Tags
from cqstore.store.errors import NoSuchQueueError
from cqstore.store.record.message import DLQ_PREFIX

OneGroup = Annotated[
    str | None, typer.Argument(metavar="GROUP", help="Print the dead letters of this group.")
]
RowOf = Annotated[
    LettersBy | None,
    typer.Option(help="A row a group, an original topic (the default), or number of retries."),
]
PutTo = Annotated[
    Again | None,
    typer.Option(help="With GROUP: as they are to be put, to their topic or to the group."),
]
Origin = Annotated[
    str | None, typer.Option("--topic", metavar="T", help="Of this original topic alone.")
]
Sort = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Order rows by this column: messages, if not given."),
]
Limit = Annotated[
    int,
    typer.Option(
        metavar="N", min=0, callback=java_long, help="The first N rows or messages alone; 0: all."
    ),
]
Kind = Annotated[
    RowFormat | None,
    typer.Option("--output", help="How to print: table, with GROUP jsonl, if not given."),
]


def dlq(
    root: Dir,
    group: OneGroup = None,
    by: RowOf = None,
    again: PutTo = None,
    origin: Origin = None,
    begin: Begin = None,
    end: End = None,
    tags: Tags = None,
    key: Key = None,
    grep: Grep = None,
    sort: Sort = None,
    limit: Limit = 0,
    pattern: Pattern = None,
    form: BrokerForm = None,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Kind = None,
) -> None:
    """Show dead letters by group and original topic, or those of a group. Changes nothing.

    Counted are the messages of %DLQ%GROUP that are in the log, with how often they were consumed
    again, and the store times (ms) of the first and last. Totals are on standard error.

    With GROUP its messages are printed, as cqstore get prints them, oldest first. With --again they
    are as before their first failure, for cqstore import or put: in their original topic, where
    every group gets them, or in the retry topic of GROUP, which it alone consumes. Exit code 1 if
    something damaged, or a message that names no original topic, was passed over, or with --by
    group if some of the metadata cannot be read.
    """
    selection = Selection.of(begin, end, None, tags, key, grep)
    _refuse_together(group, by, again, sort, pattern, form)
    printed = MessageOutput(kind or RowFormat.JSONL, pattern)
    with open_store(root, config, backend, commit_log, check_crc_on_pull=True) as store:
        letters = StoreLetters(store, SelectedReads(store, selection), origin)
        lags = RetryLags(store, form, config) if by is LettersBy.GROUP else None
        if group is None:
            rows = letter_rows(letters, by or LettersBy.TOPIC, lags)
            found = ranked(rows, sort or "messages", COLUMNS[by or LettersBy.TOPIC], limit)
            output(kind or RowFormat.TABLE).rows(found)
            note(f"{letters.messages} dead letters of {letters.groups} groups")
        else:
            _print_messages(letters, group.removeprefix(DLQ_PREFIX), again, limit, printed)
    end_with_faults([] if lags is None else lags.faults)
    if letters.passed_over:
        raise typer.Exit(1)


def _refuse_together(
    group: str | None, by: LettersBy | None, again: Again | None, sort: str | None,
    pattern: str | None, form: Form | None,
) -> None:  # fmt: skip
    """Refuse options that say nothing beside GROUP, or without it.

    Raises:
        typer.BadParameter: one is given.
    """
    if group is not None:
        refuse_beside("GROUP", by=by, sort=sort, form=form)
        return
    for option, value in (("--again", again), ("--format", pattern)):
        if value is not None:
            raise typer.BadParameter("it is about messages: name a GROUP", param_hint=option)
    if form is not None and by is not LettersBy.GROUP:
        raise typer.BadParameter("retryLag alone needs it: --by group", param_hint="--form")


def _print_messages(
    letters: StoreLetters, group: str, again: Again | None, limit: int, printed: MessageOutput
) -> None:
    """Print the dead letters of ``group``.

    Raises:
        NoSuchQueueError: it has no topic of dead letters.
    """
    if dlq_topic(group) not in letters.topics:
        known = [topic.removeprefix(DLQ_PREFIX) for topic in letters.topics]
        raise NoSuchQueueError(f"no dead letters of a group {group!r}{near_groups(group, known)}")
    reads = letters.of_group(group)
    made = None
    if again is not None:
        made = PutAgain(letters.store, group, again)
        reads = made.messages(reads)
    count = printed.messages(limited(reads, limit, "messages", "--limit"))
    note(f"{count} messages")
    if made is not None and made.unplaced:
        letters.unplaced = made.unplaced
        note(f"{made.unplaced} messages name no original topic and are passed over")
