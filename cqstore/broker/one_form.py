"""Selection of the form of metadata for a report."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from cqstore.broker.metadata.forms import NO_METADATA, read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.cli.options import note
from cqstore.store.errors import RefusedStoreError, StoreError
from cqstore.store.paths import StorePaths
from cqstore.store.settings.broker_conf import BrokerConf

BrokerForm = Annotated[
    Form | None,
    typer.Option("--form", help="Form of the metadata that the broker reads, if DIR has several."),
]


def named_form(text: str | None) -> Form | None:
    """Return the form that ``--form`` names; ``None`` without it.

    Raises:
        typer.BadParameter: there is no such form.
    """
    try:
        return None if text is None else Form(text)
    except ValueError as exc:
        names = ", ".join(Form)
        raise typer.BadParameter(
            f"invalid form {text!r}: expected one of {names}", param_hint="--form"
        ) from exc


def form_by_config(config: Path | None) -> Form | None:
    """Return the form that a broker with this configuration reads; ``None`` without ``config``.

    Raises:
        StoreError: see ``BrokerConf.settings``.
    """
    if config is None:
        return None
    settings = BrokerConf.read(config).settings()
    if (settings.config_manager_version or "").lower() == Form.V2:
        return Form.V2
    if settings.store_type.lower() != "defaultrocksdb":
        return Form.JSON
    return Form.SINGLE if settings.single_metadata else Form.V1


def read_one_form(
    paths: StorePaths, form: Form | None = None, config: Path | None = None
) -> BrokerMetadata:
    """Return the metadata in ``form``, or in the only existing form.

    If there are several forms, the form that a broker with ``config`` reads is returned.

    Raises:
        RefusedStoreError: there is no metadata, or there are several forms and none is selected.
    """
    found = find_one_form(paths, form, config)
    if found is None:
        raise RefusedStoreError(NO_METADATA, path=paths.config)
    return found


def find_one_form(
    paths: StorePaths, form: Form | None = None, config: Path | None = None
) -> BrokerMetadata | None:
    """Return the same as ``read_one_form``; ``None`` if there is no metadata in any form.

    Raises:
        RefusedStoreError: ``form`` does not exist, or there are several forms and none is selected.
    """
    found = read_forms(paths)
    wanted = [each for each in found if form is None or each.form is form]
    if found and not wanted:
        raise RefusedStoreError(f"{NO_METADATA} in the form {form}", path=paths.config)
    if len(wanted) > 1 and (by_config := form_by_config(config)) is not None:
        wanted = [each for each in wanted if each.form is by_config] or wanted
    if len(wanted) > 1:
        names = ", ".join(each.form.value for each in wanted)
        raise RefusedStoreError(
            f"found metadata in several forms ({names}): select the one that the broker reads"
            " with --form or --config",
            path=paths.config,
        )
    return wanted[0] if wanted else None


def note_remarks(found: Iterable[BrokerMetadata]) -> None:
    """Print the remarks on how the metadata was read to standard error."""
    for each in found:
        for sentence in each.sentences():
            note(sentence)


def end_with_faults(faults: Sequence[StoreError]) -> None:
    """Report metadata that could not be read, after a report that omits it.

    Raises:
        typer.Exit: there are faults; the exit code is 1.
    """
    for fault in faults:
        note(str(fault))
    if faults:
        raise typer.Exit(1)
