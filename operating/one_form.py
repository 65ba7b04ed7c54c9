"""The metadata that a report is about: one form of it."""

from metadata.forms import read_forms
from metadata.model import BrokerMetadata, Form
from store.errors import RefusedStoreError
from store.paths import StorePaths


def read_one_form(paths: StorePaths, form: Form | None = None) -> BrokerMetadata:
    """Return the metadata in ``form``; without it that of the only form that is there.

    Raises:
        RefusedStoreError: there is none, or there are several and ``form`` does not say which.
    """
    found = read_forms(paths)
    wanted = [each for each in found if form is None or each.form is form]
    config = paths.topics.parent
    if not wanted:
        kind = "" if form is None else f" in the form {form}"
        raise RefusedStoreError(f"no metadata of a broker{kind} is there", path=config)
    if len(wanted) > 1:
        names = ", ".join(each.form.value for each in wanted)
        raise RefusedStoreError(
            f"metadata is there in several forms ({names}): say with --form which the broker reads",
            path=config,
        )
    return wanted[0]
