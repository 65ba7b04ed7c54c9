"""The verbs ``cqstore meta repair`` and ``cqstore meta make-topics``."""

from collections.abc import Mapping
from pathlib import Path

import typer

from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.json_repair import (
    Repair,
    apply_repairs,
    base_of_topics,
    plan_repairs,
    with_made_topics,
)
from cqstore.broker.metadata.model import Form
from cqstore.broker.metadata.placing import is_placing
from cqstore.cli.options import (
    NOT_APPLIED,
    CommitLogFolder,
    ConfigFile,
    Dir,
    Format,
    Yes,
    check_is_there,
    note,
    open_store,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.store.broker_files.file_names import TOPICS_FILE
from cqstore.store.errors import RefusedStoreError
from cqstore.store.journals.store_lock import StoreLock, refuse_if_open
from cqstore.store.path_kind import exists, matching
from cqstore.store.paths import StorePaths
from cqstore.store.service.offline.made_topics import TopicQueues, topics_of_spans
from cqstore.store.service.opening.components import components_of


def repair(
    root: Dir,
    *,
    yes: Yes = False,
    config: ConfigFile = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Repair unreadable JSON metadata files of a stopped broker.

    The source of each file is its .bak, else the only other form, if that is intact. For topics,
    the last source is the queues. Replaced files are kept in DIR/cqstore/replaced. To rebuild a
    damaged database from another form, use cqstore meta convert --from. Exit code 1 if a file has
    no source to repair it from.

    Examples:
        cqstore meta repair DIR
        cqstore meta repair DIR --config broker.conf --yes
    """
    paths = stopped_store(root)
    queues = _queues(root, config, commit_log) if _has_queues(paths) else {}
    plan = _plan_repairs(paths, queues)
    kept = None
    if yes and any(each.source for each in plan):
        with StoreLock(paths):
            plan = _plan_repairs(paths, queues)
            kept = apply_repairs(paths, [each for each in plan if each.source])
    output(kind).rows(
        {
            "file": each.name, "fault": each.fault, "from": each.source or None,
            "done": yes and bool(each.source), "keptIn": str(kept) if kept else None,
        }
        for each in plan
    )  # fmt: skip
    _note_databases(paths)
    if plan and not yes:
        note(NOT_APPLIED)
    if any(not each.source for each in plan):
        note(
            "cannot repair the files without a source: no backup or other form has their content,"
            " and groups and offsets cannot be rebuilt from the queues"
        )
        raise typer.Exit(1)


def make_topics(
    root: Dir,
    *,
    yes: Yes = False,
    config: ConfigFile = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Add topics that have queues but no configuration to topics.json.

    Existing rows stay. The number of queues of a new row follows from the highest queue id. The
    other values are RocketMQ's defaults, because queues do not record order and attributes. The
    data version gets a higher counter, so that a broker that keeps topics in RocksDB loads the
    file.

    Examples:
        cqstore meta make-topics DIR
        cqstore meta make-topics DIR --yes
    """
    paths = stopped_store(root)
    queues = _queues(root, config, commit_log)
    missing = _missing(paths, queues)
    if yes and missing:
        with StoreLock(paths):
            missing = _missing(paths, queues)
            found = read_forms(paths)
            content = with_made_topics(found, base_of_topics(found, root), missing)
            apply_repairs(paths, [Repair(TOPICS_FILE, "", "queues", content)])
    output(kind).rows(
        {
            "topic": name, "queues": shown.queues, "units": shown.units,
            "type": shown.queue_type.value, "done": yes,
        }
        for name, shown in sorted(missing.items())
    )  # fmt: skip
    if missing and not yes:
        note(NOT_APPLIED)


def stopped_store(root: Path) -> StorePaths:
    """Return the paths of a store whose broker is stopped.

    Raises:
        RefusedStoreError: there is no store, or a conversion was interrupted.
        StoreLockedError: a process has the store open.
    """
    paths = StorePaths(root)
    check_is_there(root)
    refuse_if_open(paths)
    if is_placing(paths):
        raise RefusedStoreError(
            "an earlier conversion was interrupted: finish it first with cqstore meta convert",
            path=root,
        )
    return paths


def _has_queues(paths: StorePaths) -> bool:
    return exists(paths.commit_log) or bool(matching(paths.root, "consumequeue*"))


def _queues(root: Path, config: Path | None, commit_log: Path | None) -> dict[str, TopicQueues]:
    with open_store(root, config, None, commit_log) as store:
        found = topics_of_spans(store.queue_spans())
        for topic, shown in found.items():
            shown.queue_type = components_of(store).queues.queue_type(topic)
    return found


def _plan_repairs(paths: StorePaths, queues: Mapping[str, TopicQueues]) -> list[Repair]:
    return list(plan_repairs(paths, read_forms(paths), queues))


def _missing(paths: StorePaths, queues: Mapping[str, TopicQueues]) -> dict[str, TopicQueues]:
    base = base_of_topics(read_forms(paths), paths.root)
    known = set() if base is None else base.topics.keys()
    return {name: shown for name, shown in queues.items() if name not in known}


def _note_databases(paths: StorePaths) -> None:
    for each in read_forms(paths):
        if each.form is not Form.JSON and each.faults:
            note(
                f"the form {each.form} is damaged: {each.faults[0]} (use cqstore meta convert"
                " --from with another form)"
            )
