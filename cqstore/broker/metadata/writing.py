"""Writer of metadata in any form, and comparison of two forms."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cqstore.broker.metadata.form_limits import refuse_unfit
from cqstore.broker.metadata.json_writer import write_delays, write_json
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.metadata.rocksdb_v1 import write_single, write_v1
from cqstore.broker.metadata.rocksdb_v2 import write_v2
from cqstore.store.paths import StorePaths
from cqstore.store.sentences import some_of

_MAX_SHOWN = 5


def write_form(found: BrokerMetadata, form: Form, root: Path, *, lmq: bool = False) -> None:
    """Write all of ``found`` durably to a separate folder, ``root/config``.

    ``lmq``: a broker with ``enableLmq`` will read it; used only for JSON.

    Raises:
        RefusedStoreError: the form cannot store a part, which the error names; nothing was written.
        StoreIOError: a file cannot be written.
    """
    refuse_unfit(found, form)
    config = StorePaths(root).config
    match form:
        case Form.JSON:
            write_json(found, config, lmq=lmq)
        case Form.V1:
            write_v1(found, config)
        case Form.SINGLE:
            write_single(found, config)
        case Form.V2:
            write_v2(found, config)
    write_delays(found, config)


def differences(one: BrokerMetadata, other: BrokerMetadata) -> Iterator[str]:
    """Yield a sentence for each table that differs; all fields and versions are compared.

    Groups without a forbidden topic and keys without a queue are ignored.
    """
    for table in ("topics", "groups", "forbidden", "offsets", "pull_offsets", "delay_offsets"):
        yield from differences_in(table, getattr(one, table), getattr(other, table))
    yield from differences_in("versions", one.versions, other.versions)


def differences_in(
    table: str, one: Mapping[Any, object], other: Mapping[Any, object]
) -> Iterator[str]:
    """Yield a sentence if a table differs, with the first names that differ."""
    left, right = _content(one), _content(other)
    names = [
        name for name in sorted(left.keys() | right.keys()) if left.get(name) != right.get(name)
    ]
    if names:
        yield f"{table} differ in {some_of(names[:_MAX_SHOWN], len(names))}"


def _content(table: Mapping[Any, object]) -> dict[str, str]:
    """Return name → content as text, because 1 equals True in Python but not in JSON."""
    return {
        str(name): json.dumps(content, sort_keys=True)
        for name, content in table.items()
        if content != {}
    }
