"""A result as a file: written whole, read with distrust."""

import json
from pathlib import Path

from pydantic import ValidationError

from cqstore.ab.results.result import FORMAT, Result
from cqstore.store.errors import StoreConfigError, UnsupportedFormatError, os_errors
from cqstore.store.files import read_file, replace_file
from cqstore.store.path_kind import is_dir
from cqstore.store.settings.validation import first_fault

_MAX_BYTES = 1 << 28
"""Some hundred bytes a turn, some thousand a histogram."""
_JUDGED = {"reference", "answers", "workloads", "footprint"}
"""Keys of a judgement, see ``cqstore.ab.judging``, that together no other file has."""


def result_schema() -> str:
    """Return the JSON schema of a result, as ``result.schema.json`` has it."""
    return json.dumps(Result.model_json_schema(), indent=1) + "\n"


def write_result(path: Path, result: Result) -> None:
    """Write the result, durably; an existing file is replaced.

    Raises:
        StoreIOError: it cannot be written.
    """
    with os_errors("write the result", path):
        replace_file(path, (result.model_dump_json(indent=1) + "\n").encode())


def read_result(path: Path) -> Result:
    """Return the result in a file.

    Raises:
        StoreConfigError: the file is not a result; the message names the first fault.
        UnsupportedFormatError: the result has another version.
        CorruptionError: not a regular file, or too long for a result.
        StoreIOError: the file cannot be read.
    """
    if is_dir(path):
        raise StoreConfigError("this is a folder, not a result of cqstore ab", path=path)
    with os_errors("read the result", path):
        text = read_file(path, _MAX_BYTES)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise StoreConfigError(
            "this is not a result of cqstore ab: it is not valid JSON", path=path
        ) from exc
    version = found.get("format") if isinstance(found, dict) else None
    if isinstance(version, int) and version != FORMAT:
        raise UnsupportedFormatError(
            f"the result has format {version}, but this release reads format {FORMAT}", path=path
        )
    if isinstance(found, dict) and found.keys() >= _JUDGED:
        raise StoreConfigError(
            "this is a judgement of --output json, not a result: give the file of --result",
            path=path,
        )
    try:
        return Result.model_validate_json(text)
    except ValidationError as exc:
        raise StoreConfigError(
            f"this is not a result of cqstore ab: {first_fault(exc)}", path=path
        ) from exc
