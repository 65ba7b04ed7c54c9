"""``cqstore info``: shows the facts of a store and warnings about it."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.info_facts import FACTS, facts, schema
from cqstore.cli.options import Backend, CommitLogFolder, ConfigFile, Format, meant, open_store
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress

_WIDTH = 100
"""Maximum width of the table."""
_NONE = {"state": "not set (cqstore mode)", "index_files": "no index"}
_SHOWN_OTHERWISE = {"opened_by", "counted_all", "index_fault"}
"""Facts that the table shows as part of another fact."""
_EXITS = {"not clean": "not clean: recovery is needed"}


def info(
    root: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR", help="Root folder of the store (storePathRootDir).", callback=meant
        ),
    ] = None,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
    *,
    show_schema: Annotated[
        bool, typer.Option("--schema", help="Print only the JSON schema of the output.")
    ] = False,
) -> None:
    """Show layout, backend, versions, sizes, offsets and warnings of a store. Changes nothing.

    The command opens the store read-only. With --output json, it prints all facts as one JSON
    object. With --schema, DIR is not needed.

    Examples:
        cqstore info DIR
        cqstore info DIR --output json
    """
    if show_schema:
        typer.echo(json.dumps(schema(), indent=2))
        return
    if root is None:
        raise typer.BadParameter("give the folder of a store", param_hint="DIR")
    with progress("reading"), open_store(root, config, backend, commit_log) as store:
        found = dict(facts(store))
    if kind is OutputFormat.TABLE:
        for line in _lines(found):
            typer.echo(line)
    else:
        output(kind).record(found)


def _lines(found: dict[str, object]) -> Iterator[str]:
    """Yield lines of label and value; values are aligned and folded at column 100."""
    rows = list(_rows(found))
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        folded = textwrap.wrap(value, _WIDTH - width - 2, break_on_hyphens=False) or [""]
        yield f"{label:{width}}  {folded[0]}".rstrip()
        for more in folded[1:]:
            yield f"{'':{width}}  {more}"


def _rows(found: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Yield label and text of each fact."""
    for name, value in found.items():
        if name in _SHOWN_OTHERWISE or (name.endswith("stamp") and name[:-5] in found):
            continue
        if isinstance(value, dict):
            yield from ((key.replace("_", " "), _text(key, each)) for key, each in value.items())
            continue
        label = FACTS[name].label or name.replace("_", " ")
        if name == "warnings" and isinstance(value, list) and value:
            yield from ((name if not number else "", each) for number, each in enumerate(value))
        elif name == "last_exit":
            opener = found["opened_by"]
            text = f"none: process {opener} has the store open" if opener else str(value)
            yield label, _EXITS.get(text, text)
        elif name == "index_files" and found["index_fault"]:
            yield label, "cannot be read: see warnings"
        elif name in {"topics", "queues"}:
            yield label, f"{value}{'' if found['counted_all'] else '+'}"
        else:
            yield label, _NONE.get(name, "none") if value in (None, []) else _text(name, value)


def _text(name: str, value: object) -> str:
    """Return the value of fact ``name`` in readable form, with its unit."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, int | float) and name.endswith("bytes"):
        return f"{value:,} bytes"
    if isinstance(value, int | float) and name.endswith("percent"):
        return f"{value} %"
    return str(value)
