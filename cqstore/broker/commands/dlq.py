"""The verb ``cqstore dlq``."""

from typing import Annotated

import typer

from cqstore.broker.dlq.dead_letters import Again, PutAgain, dlq_topic
from cqstore.broker.dlq.letter_rows import COLUMNS, LettersBy, RetryLags, StoreLetters, letter_rows
from cqstore.broker.groups.group_lag import near_groups
from cqstore.broker.metadata.model import Form
from cqstore.broker.one_form import BrokerForm, end_with_faults
from cqstore.broker.ranking import ranked
from cqstore.cli.limited import BoundedAnswer
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
    str | None, typer.Argument(metavar="GROUP", help="Consumer group whose dead letters to print.")
]
RowOf = Annotated[
    LettersBy | None,
    typer.Option(
        help="Print one row per group, original topic or number of retries. Default: topic."
    ),
]
PutTo = Annotated[
    Again | None,
    typer.Option(
        help="Restore messages for resending to their topic or only to GROUP. Needs GROUP."
    ),
]
Origin = Annotated[
    str | None,
    typer.Option("--topic", metavar="T", help="Select only dead letters of this original topic."),
]
Sort = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column to sort by: numbers descending, text ascending. Default: messages.",
    ),
]
Limit = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        callback=java_long,
        help="Maximum number of rows or messages; 0 for all.",
    ),
]
Kind = Annotated[
    RowFormat | None,
    typer.Option("--output", help="Output format. Default: table, or jsonl with GROUP."),
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
    """Count dead letters, or print those of one consumer group. Changes nothing.

    Counts messages of %DLQ%GROUP with their retries and store times (ms). With GROUP, prints its
    messages like cqstore get, oldest first. --again restores each message as it was before its
    first failure, for cqstore import or put. The target is its original topic, which every group
    consumes, or the retry topic of GROUP. Totals are on standard error. Exit code 1 if a damaged
    message or one without an original topic was skipped, or if --by group cannot read metadata.

    Examples:
        cqstore dlq DIR --by group
        cqstore dlq DIR order-consumers --again group --output jsonl
    """
    selection = Selection.of(begin, end, None, tags, key, grep)
    _refuse_together(group, by, again, sort, pattern, form)
    printed = MessageOutput(kind or RowFormat.JSONL, pattern)
    with open_store(root, config, backend, commit_log, check_crc_on_pull=True) as store:
        letters = StoreLetters(store, SelectedReads(store, selection), origin)
        lags = RetryLags(store, form, config) if by is LettersBy.GROUP else None
        if group is None:
            rows = letter_rows(letters, by or LettersBy.TOPIC, lags)
            columns, bounded = COLUMNS[by or LettersBy.TOPIC], BoundedAnswer()
            found = ranked(rows, sort or "messages", columns, limit, bounded)
            output(kind or RowFormat.TABLE).rows(found, bounded.has_more)
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
    """Refuse options that cannot be used with GROUP, or without it.

    Raises:
        typer.BadParameter: such an option is given.
    """
    if group is not None:
        refuse_beside("GROUP", by=by, sort=sort, form=form)
        return
    for option, value in (("--again", again), ("--format", pattern)):
        if value is not None:
            raise typer.BadParameter("only allowed with GROUP", param_hint=option)
    if form is not None and by is not LettersBy.GROUP:
        raise typer.BadParameter("only allowed with --by group", param_hint="--form")


def _print_messages(
    letters: StoreLetters, group: str, again: Again | None, limit: int, printed: MessageOutput
) -> None:
    """Print the dead letters of ``group``.

    Raises:
        NoSuchQueueError: the group has no dead-letter topic.
    """
    if dlq_topic(group) not in letters.topics:
        known = [topic.removeprefix(DLQ_PREFIX) for topic in letters.topics]
        hint = near_groups(group, known)
        raise NoSuchQueueError(f"no dead letters found for group {group!r}{hint}")
    reads = letters.of_group(group)
    made = None
    if again is not None:
        made = PutAgain(letters.store, group, again)
        reads = made.messages(reads)
    bounded = BoundedAnswer()
    shown = bounded.limited(reads, limit, "messages", "--limit")
    count = printed.messages(shown, bounded.has_more)
    note(f"{count} messages")
    if made is not None and made.unplaced:
        letters.unplaced = made.unplaced
        note(f"{made.unplaced} messages without an original topic are skipped")
