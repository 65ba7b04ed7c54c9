"""Conversion of a broker's metadata to another form, verified before it replaces the old form."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from cqstore.broker.metadata.form_limits import lone_pull_offsets, refuse_unfit
from cqstore.broker.metadata.forms import NO_METADATA, read_forms
from cqstore.broker.metadata.json_form import (
    UNKNOWN_FIELDS_FOUND,
    offsets_disagree,
    unknown_fields,
)
from cqstore.broker.metadata.model import BrokerMetadata, Form, Remark
from cqstore.broker.metadata.placing import clear_new, place
from cqstore.broker.metadata.writing import differences, write_form
from cqstore.store.broker_files.file_names import LMQ_OFFSETS_FILE, OFFSETS_FILE
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreIOError
from cqstore.store.paths import StorePaths
from cqstore.store.sentences import some_of


class Droppable(StrEnum):
    """A table that a form cannot store, and that may be dropped."""

    FORBIDDEN = "forbidden"
    """Permissions denied to groups; version 2 cannot store them."""
    PULL_OFFSETS = "pull-offsets"
    """Offsets of pull consumers; only version 2 stores them."""


def dropped(found: BrokerMetadata, to: Form, drop: Collection[Droppable]) -> list[Droppable]:
    """Return the existing tables of ``drop`` that the form ``to`` cannot store; others are kept."""
    homeless = {
        Droppable.FORBIDDEN: to is Form.V2 and any(found.forbidden.values()),
        Droppable.PULL_OFFSETS: to is not Form.V2 and any(found.pull_offsets.values()),
    }
    return [each for each in drop if homeless[each]]


def choose_form(found: Sequence[BrokerMetadata], wanted: Form | None, root: Path) -> BrokerMetadata:
    """Return the form to convert from: ``wanted``, or the only existing one.

    Raises:
        RefusedStoreError: there is no form, or there are several and ``wanted`` does not select
            one.
    """
    forms = [each for each in found if wanted in {None, each.form}]
    if len(forms) == 1:
        return forms[0]
    if not forms:
        missing = "" if wanted is None else f" in the form {wanted}"
        raise RefusedStoreError(f"{NO_METADATA} in config/{missing}", path=root)
    there = ", ".join(each.form for each in forms)
    raise RefusedStoreError(
        f"found metadata in several forms ({there}): select the current one with --from; the"
        " others are moved away. To compare them, use cqstore meta DIR --check",
        path=root,
    )


def converted(found: BrokerMetadata, to: Form, drop: Collection[Droppable] = ()) -> BrokerMetadata:
    """Return ``found`` converted to the form ``to``.

    Tables in ``drop`` that the form cannot store are left out. A JSON file with change counter 0
    gets counter 1; otherwise, a broker that later keeps its metadata in RocksDB would ignore the
    file.

    Raises:
        RefusedStoreError: ``found`` is damaged, or ``to`` cannot store a part of it.
    """
    refuse_unless_whole(found)
    return fitted(found, to, drop)


def fitted(found: BrokerMetadata, to: Form, drop: Collection[Droppable] = ()) -> BrokerMetadata:
    """Return ``found``, which has no faults, converted to the form ``to``; see ``converted``.

    Raises:
        RefusedStoreError: ``to`` cannot store a part of ``found``.
    """
    out = dropped(found, to, drop)
    has_no_pulls = Droppable.PULL_OFFSETS in out
    remarks = dict(found.remarks)
    if to is not Form.V2 and found.pull_offsets and not has_no_pulls:
        has_no_pulls = not lone_pull_offsets(found)
        keys = sorted(found.pull_offsets)
        remarks[Remark.PULLS_LEFT_OUT] = [some_of(keys[:3], len(keys))]
    made = replace(
        found, form=to, versions=dict(found.versions), delay_offsets={},
        forbidden={} if Droppable.FORBIDDEN in out else found.forbidden,
        pull_offsets={} if has_no_pulls else found.pull_offsets, remarks=remarks,
    )  # fmt: skip
    if to is Form.JSON:
        made.raise_counters()
    refuse_unfit(made, to)
    return made


def convert(
    paths: StorePaths, made: BrokerMetadata, *, lmq: bool = False, keep: Collection[Form] = ()
) -> Path:
    """Write ``made`` to a temporary folder, compare every field, and replace the other forms.

    The caller has the store's lock, and has finished an earlier interrupted call. Forms in ``keep``
    stay in place.

    Returns:
        the folder that the other forms were moved to.

    Raises:
        CorruptionError: the data read back differs from the data written; nothing was changed.
        StoreIOError: a file cannot be written, see ``place``.
    """
    build_beside(paths, made, lmq=lmq)
    return place(paths, made.form, keep)


def build_beside(paths: StorePaths, made: BrokerMetadata, *, lmq: bool = False) -> None:
    """Write ``made`` into ``new_metadata``, read it back and compare every field.

    Remains of an earlier call are removed first. The caller has the store's lock.

    Raises:
        CorruptionError: the data read back differs from the data written.
        StoreIOError: a file cannot be written or read.
    """
    clear_new(paths)
    write_form(made, made.form, paths.new_metadata, lmq=lmq)
    wrong = list(_wrong_with_new(paths, made))
    if wrong:
        raise CorruptionError(
            f"verification of the converted metadata failed: {'; '.join(wrong)}",
            path=paths.new_metadata,
        )


def _wrong_with_new(paths: StorePaths, made: BrokerMetadata) -> Iterator[str]:
    """Yield the differences between the new form, read back, and ``made``."""
    new = read_forms(StorePaths(paths.new_metadata))
    if [each.form for each in new] != [made.form]:
        yield f"expected the form {made.form} alone"
    for each in new:
        for fault in each.faults:
            if isinstance(fault, StoreIOError):
                raise fault
            yield str(fault)
        yield from differences(made, each)


def refuse_unless_whole(found: BrokerMetadata) -> None:
    """Refuse a form that cannot be rewritten with its complete content.

    Raises:
        RefusedStoreError: the form is damaged or has content that cqstore does not support.
    """
    if found.faults:
        raise RefusedStoreError(
            f"the form {found.form} is damaged ({len(found.faults)} faults, first:"
            f" {found.faults[0]}). Repair it first (cqstore meta repair)", path=found.path,
        )  # fmt: skip
    if found.form is not Form.JSON:
        return
    if unknown := unknown_fields(found.path):
        raise RefusedStoreError(f"{UNKNOWN_FIELDS_FOUND}: {', '.join(unknown)}", path=found.path)
    if keys := offsets_disagree(found.path):
        raise RefusedStoreError(
            f"{OFFSETS_FILE} and {LMQ_OFFSETS_FILE} differ in {len(keys)} keys, first {keys[0]!r}:"
            f" move away the file that the broker no longer writes ({LMQ_OFFSETS_FILE} belongs to"
            " enableLmq)",
            path=found.path,
        )
