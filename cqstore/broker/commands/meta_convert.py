"""The verb ``cqstore meta convert``."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from cqstore.broker.metadata.convert import Droppable, choose_form, convert, converted, dropped
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.metadata.placing import clear_new, finish_placing, is_placing, place
from cqstore.broker.one_form import note_remarks
from cqstore.cli.options import NOT_APPLIED, Dir, Format, Yes, check_is_there, note
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.table import Row
from cqstore.store.broker_files.file_names import LMQ_OFFSETS_FILE
from cqstore.store.errors import RefusedStoreError
from cqstore.store.journals.store_lock import StoreLock, refuse_if_open
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths

_SETTINGS = {
    Form.JSON: "without storeType=defaultRocksDB",
    Form.V1: "with storeType=defaultRocksDB",
    Form.SINGLE: "with storeType=defaultRocksDB and useSingleRocksDBForAllConfigs=true",
    Form.V2: "with configManagerVersion=v2",
}
"""Form → settings of the broker that reads it."""
Target = Annotated[Form, typer.Option("--to", help="Form to convert to.")]
Source = Annotated[
    Form | None, typer.Option("--from", help="Form to convert from, if DIR has several.")
]
Drop = Annotated[
    list[Droppable] | None,
    typer.Option(
        "--drop",
        metavar="WHAT",
        help=f"Drop this table if the new form cannot store it: {', '.join(Droppable)};"
        " may be repeated.",
    ),
]
WithLmq = Annotated[
    bool,
    typer.Option(
        "--lmq", help="Converting to JSON: also write lmqConsumerOffset.json (enableLmq)."
    ),
]


def convert_command(
    root: Dir,
    to: Target,
    source: Source = None,
    drop: Drop = None,
    *,
    lmq: WithLmq = False,
    yes: Yes = False,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Convert topics, groups and offsets of a stopped broker to another form.

    The command writes the new form to a temporary folder, reads it back, compares every field, and
    moves it into place. The other forms move to DIR/cqstore/replaced, unchanged. If the command is
    killed, DIR/config still has one complete form, and the next call with --yes continues.

    Converting a form to itself only moves the other forms away. Delay offsets are a JSON file with
    every form and do not change. Tables that the new form cannot store are refused unless you name
    them with --drop.

    Examples:
        cqstore meta convert DIR --to v1
        cqstore meta convert DIR --from v2 --to json --drop pull-offsets --yes
    """
    paths = StorePaths(root)
    check_is_there(root)
    refuse_if_open(paths)
    plan: _Plan | None = None
    if not is_placing(paths):
        plan = _plan(paths, source, to, drop or ())  # a refusal leaves no lock file
    elif not yes:
        raise RefusedStoreError("an interrupted conversion exists: finish it with --yes", path=root)
    away = None
    if yes:
        with StoreLock(paths):
            if sentence := finish_placing(paths):
                note(sentence)
            plan = _plan(paths, source, to, drop or ())
            away = _convert(paths, plan, to, lmq=lmq)
    if plan is None:
        note(f"nothing to do: the metadata is already in the form {to} only")
        return
    note_remarks([plan.made])
    output(kind).record(_row(plan, to, drop or (), away))
    note(f"a broker {_SETTINGS[to]} reads this form" if yes else NOT_APPLIED)


class _Plan(NamedTuple):
    """The metadata to convert, and the converted metadata."""

    source: BrokerMetadata
    made: BrokerMetadata


def _plan(
    paths: StorePaths, source: Form | None, to: Form, drop: Collection[Droppable]
) -> _Plan | None:
    """Return what to write; ``None`` if ``to`` is the only existing form."""
    there = read_forms(paths)
    if [each.form for each in there] == [to]:
        return None
    found = choose_form(there, source, paths.root)
    return _Plan(found, converted(found, to, drop))


def _convert(paths: StorePaths, plan: _Plan | None, to: Form, *, lmq: bool) -> Path | None:
    """Carry out the plan; return the folder of the replaced files, ``None`` without a plan."""
    if plan is None:
        return None
    if plan.source.form is to:  # rewriting it would leave no complete form for a moment
        clear_new(paths)
        return place(paths, to)
    also_lmq = to is Form.JSON and (lmq or exists(plan.made.path / LMQ_OFFSETS_FILE))
    return convert(paths, plan.made, lmq=also_lmq)


def _row(plan: _Plan, to: Form, drop: Collection[Droppable], away: Path | None) -> Row:
    """Return a planned or finished conversion as a row."""
    made = plan.made
    return {
        "from": plan.source.form.value, "to": to.value, "topics": len(made.topics),
        "groups": len(made.groups), "offsets": sum(map(len, made.offsets.values())),
        "pullOffsets": sum(map(len, made.pull_offsets.values())),
        "dropped": [each.value for each in dropped(plan.source, to, drop)],
        "done": away is not None, "movedTo": None if away is None else str(away),
    }  # fmt: skip
