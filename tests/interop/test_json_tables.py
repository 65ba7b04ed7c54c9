"""A broker's JSON files and rows: RocketMQ's managers and we make the same of 10,000 texts."""

import base64
import json
import random
import re
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cqstore.broker.metadata.json_form import read_json, read_table_text
from cqstore.broker.metadata.model import BrokerMetadata, Remark
from cqstore.broker.metadata.table_kinds import GROUP, OFFSET_ROW, TOPIC
from cqstore.store.broker_files.fastjson import broker_row
from cqstore.store.broker_files.fastjson_kinds import VERSION, Record, UnclearJsonError
from cqstore.store.broker_files.file_names import (
    DELAYS_FILE,
    GROUPS_FILE,
    LMQ_OFFSETS_FILE,
    OFFSETS_FILE,
    TOPICS_FILE,
)
from cqstore.store.errors import CorruptionError, RefusedStoreError
from tests.interop.started import started
from tests.kit.metadata_forms import unpack_forms
from tests.kit.table_texts import mutated_tables
from tools.bench.peer.maven import JavaProgram, UnavailableError

pytestmark = pytest.mark.interop
TEXTS = 10_000
FILES = {
    "topics": TOPICS_FILE, "groups": GROUPS_FILE, "offsets": OFFSETS_FILE,
    "lmq": LMQ_OFFSETS_FILE, "delays": DELAYS_FILE,
}  # fmt: skip
ROWS = {"topicRow": TOPIC, "groupRow": GROUP, "offsetRow": OFFSET_ROW, "versionRow": VERSION}
DEFAULTS: dict[str, Any] = {
    "topicName": None, "readQueueNums": 16, "writeQueueNums": 16, "perm": 6, "order": False,
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "attributes": {},
}  # fmt: skip
GROUPS_OF_A_BROKER = re.compile(r"SELF_|TOOLS_|FILTERSRV_|CID_|DEFAULT_")
NUL_INSIDE = re.compile(rb"[^ \n\0]\0+[^ \n\0]")
"""fastjson2 mixes up short names that differ by a NUL."""


@pytest.fixture(scope="module")
def managers() -> JavaProgram:
    try:
        return JavaProgram.build(Path(__file__).parent / "metadata", "interop.Tables", "5.5.1")
    except UnavailableError as exc:
        pytest.skip(f"the managers of RocketMQ 5.5.1 cannot be had: {exc}")


def answers(managers: JavaProgram, lines: list[tuple[str, ...]]) -> list[dict[str, Any]]:
    found = []
    with started(managers, []) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for words in lines:
            process.stdin.write("\t".join(words).encode() + b"\n")
            process.stdin.flush()
            found.append(json.loads(process.stdout.readline()))
    return found


def coded(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode()


def tables_of_real_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return a part of each file that RocketMQ's managers wrote, and rows out of them."""
    unpack_forms(folder)
    found = read_json(folder / "json" / "config")
    assert found is not None
    version = {"counter": 41, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    topics = {name: found.topics[name] for name in ("orders1", "prüfung测试", "parent")}
    groups = {name: found.groups[name] for name in ("billing0", "grüppe@x")}
    few = {key: found.offsets[key] for key in sorted(found.offsets)[:4]}
    return {
        "topics": {"dataVersion": version, "topicConfigTable": topics},
        "groups": {
            "dataVersion": version, "forbiddenTable": found.forbidden,
            "subscriptionGroupTable": groups,
        },
        "offsets": {"dataVersion": version, "groupTopicMap": {"g": ["t"]}, "offsetTable": few},
        "lmq": {"dataVersion": version, "lmqOffsetTable": {"%LMQ%a@g": 3}, "offsetTable": few},
        "delays": {"dataVersion": version, "offsetTable": {"1": 5, "18": 7}},
        "topicRow": topics["orders1"], "groupRow": groups["billing0"],
        "offsetRow": {"offsetTable": {"0": 5, "1": 9}}, "versionRow": version,
    }  # fmt: skip


def same_row(ours: Any, theirs: Any, kind: Record) -> bool:
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return bool(ours == theirs)
    return all(
        named(ours[name]) == theirs[name] if name in ours
        else kind is not TOPIC or theirs[name] == DEFAULTS[name]
        for name in kind.fields if name not in {"groupRetryPolicy", "subscriptionDataSet"}
    )  # fmt: skip


def named(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): named(each) for key, each in value.items()}
    return value


def difference(kind: str, data: bytes, theirs: dict[str, Any]) -> str | None:
    """Return in what our reading differs from RocketMQ's; ``None``: in nothing."""
    try:
        ours = broker_row(data, ROWS[kind]) if kind in ROWS else read_table_text(FILES[kind], data)
    except (RefusedStoreError, UnclearJsonError):
        return None  # an error, and the backup does not count
    except (CorruptionError, ValueError) as exc:
        return None if "error" in theirs or theirs.get("row", 0) is None else f"refused: {exc}"
    if "error" in theirs:
        return f"taken: {ours}"
    if isinstance(ours, dict):
        return None if same_row_of(kind, ours, theirs["row"]) else f"{ours} is not {theirs}"
    return difference_of(kind, ours, theirs)


def same_row_of(kind: str, ours: dict[str, Any], theirs: Any) -> bool:
    if kind == "offsetRow":
        return bool(named(ours.get("offsetTable")) == theirs)
    if kind == "versionRow":
        return all(ours[name] == theirs[name] for name in VERSION.fields if name in ours)
    return same_row(ours, theirs, ROWS[kind])


def difference_of(kind: str, ours: BrokerMetadata, theirs: dict[str, Any]) -> str | None:
    offsets = named(ours.offsets)
    light = {key: {"0": offset} for key, offset in (theirs.get("lmq") or {}).items()}
    theirs_offsets = dict(theirs.get("offsets") or {})
    for key, row in light.items():
        theirs_offsets[key] = {**theirs_offsets.get(key, {}), **row}
    if offsets != theirs_offsets or named(ours.delay_offsets) != theirs.get("delays", {}):
        return f"offsets {offsets} {ours.delay_offsets}"
    if named(ours.forbidden) != (theirs.get("forbidden") or {}):
        return f"forbidden {ours.forbidden}"
    groups = {
        name: row for name, row in theirs.get("groups", {}).items()
        if name in ours.groups or not GROUPS_OF_A_BROKER.match(name)
    }  # fmt: skip
    for one, other, row_kind in (
        (ours.topics, theirs.get("topics", {}), TOPIC), (ours.groups, groups, GROUP),
    ):  # fmt: skip
        if one.keys() != other.keys() or not all(same_row(one[k], other[k], row_kind) for k in one):
            return f"rows {one}"
    for version in ours.versions.values():
        if kind != "lmq" and version.counter != theirs["version"]["counter"]:
            return f"version {version}"  # LmqConsumerOffsetManager leaves the version where it is
    return None


@pytest.mark.parametrize("seed", [int(zlib.crc32(b"json tables")), 86])
def test_rocketmq_and_we_read_the_same_of_made_up_texts(
    managers: JavaProgram, tmp_path: Path, seed: int
) -> None:
    source = mutated_tables(random.Random(seed), tables_of_real_files(tmp_path))
    texts = [
        (kind, data) for kind, data in (next(source) for _ in range(TEXTS // 2))
        if data and not NUL_INSIDE.search(data)
        and not (kind in ROWS and "\ufeff".encode() in data)  # no row is edited by hand
    ]  # fmt: skip
    theirs = answers(managers, [(kind, coded(data)) for kind, data in texts])
    unlike = [
        f"{kind}: {data!r}\n{found}\nRocketMQ: {answer}"
        for (kind, data), answer in zip(texts, theirs, strict=True)
        if (found := difference(kind, data, answer)) is not None
    ]
    counts = Counter("error" in answer for answer in theirs)
    assert min(counts[True], counts[False]) > TEXTS // 12
    assert not unlike, f"{len(unlike)} of {len(texts)}; " + "\n\n".join(unlike[:5])


def test_a_backup_counts_where_it_does_to_rocketmq(managers: JavaProgram, tmp_path: Path) -> None:
    whole = b'{"topicConfigTable":{"file":{"perm":6}},"dataVersion":{"counter":5}}'
    backup = b'{"topicConfigTable":{"bak":{"perm":4}},"dataVersion":{"counter":3}}'
    cases: list[tuple[bytes | None, bytes | None]] = [
        (whole, backup), (None, backup), (b"", backup), (whole[:30], backup), (b" \n", backup),
        (b"\xef\xbb\xbf" + whole + b"\0\0", backup), (b"null", backup), (whole + b"x", backup),
        (whole, None), (whole, b""), (whole, backup[:30]),
    ]  # fmt: skip
    theirs = answers(managers, [("topics", coded(file), coded(bak)) for file, bak in cases])
    for number, ((file, bak), answer) in enumerate(zip(cases, theirs, strict=True)):
        config = tmp_path / str(number)
        config.mkdir()
        for name, data in ((TOPICS_FILE, file), (f"{TOPICS_FILE}.bak", bak)):
            if data is not None:
                (config / name).write_bytes(data)
        found = read_json(config)
        assert found is not None
        assert found.topics.keys() == answer["topics"].keys()
        assert found.remarks == ({Remark.BACKUP_ALONE: [TOPICS_FILE]} if file is None else {})
        assert bool(found.faults) == (file is not None and "bak" in answer["topics"])
