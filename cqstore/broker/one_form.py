"""The metadata that a report is about: one form of it."""

from collections.abc import Sequence
from typing import Annotated

import typer

from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.cli.options import note
from cqstore.store.errors import RefusedStoreError, StoreError
from cqstore.store.paths import StorePaths

BrokerForm = Annotated[
    Form | None, typer.Option("--form", help="The form of the metadata that the broker reads.")
]


def read_one_form(paths: StorePaths, form: Form | None = None) -> BrokerMetadata:
    """Return the metadata in ``form``; without it that of the only form that is there.

    Raises:
        RefusedStoreError: there is none, or there are several and ``form`` does not say which.
    """
    found = find_one_form(paths, form)
    if found is None:
        raise RefusedStoreError("no metadata of a broker is there", path=paths.config)
    return found


def find_one_form(paths: StorePaths, form: Form | None = None) -> BrokerMetadata | None:
    """Return what ``read_one_form`` does; ``None`` if there is no metadata in any form.

    Raises:
        RefusedStoreError: there is none in ``form``, or ``form`` does not say which of several.
    """
    found = read_forms(paths)
    wanted = [each for each in found if form is None or each.form is form]
    config = paths.config
    if found and not wanted:
        raise RefusedStoreError(f"no metadata in the form {form} is there", path=config)
    if len(wanted) > 1:
        names = ", ".join(each.form.value for each in wanted)
        raise RefusedStoreError(
            f"metadata is there in several forms ({names}): say with --form which the broker reads",
            path=config,
        )
    return wanted[0] if wanted else None


def end_with_faults(faults: Sequence[StoreError]) -> None:
    """Say what of the metadata could not be read, behind a report that does without it.

    Raises:
        typer.Exit: there is such a thing; the exit code is 1.
    """
    for fault in faults:
        note(str(fault))
    if faults:
        raise typer.Exit(1)
