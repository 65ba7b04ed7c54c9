"""Thousands of made-up configuration files, read by RocketMQ's own classes and by ours.

Both split the lines (``Properties.load``), both convert the values (``MixAll.properties2Object``
on BrokerConfig, MessageStoreConfig and Netty's), and both must have the same afterwards.
"""

import base64
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.errors import StoreConfigError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.broker_conf import BrokerConf
from cqstore.store.settings.broker_keys import broker_keys
from cqstore.store.settings.conf_values import Outcome, judge
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.ignored_keys import ignored_keys
from tests.cq_rocksdb.engine.test_rocksdb_options import written
from tests.interop.rocketmq import FOLDER, RocketMQ
from tools.bench.peer.maven import JavaProgram

pytestmark = pytest.mark.interop
FILES = 10_000
KEYS = sorted(name for name, key in broker_keys().items() if key.until is None and not key.is_own)
OURS = [name for name in StoreConfig.known_keys() if not broker_keys()[name].is_own]
VALUES = [
    "", "0", "1", "-1", "+7", "007", "48", "48 ", "\t48", "1_000", "5.0", "5.", ".5", "1e3", "75%",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807",
    "9223372036854775808", "1" * 5000, "0x10", "0x1p3", "0x.8p1", "0x1.p3D", "0x1", "1f", "1d",
    "1L", "NaN", "+NaN", "Infinity", "-Infinity", "inf", "nan", "1e400", "1.5e-3 ", "\u00a05",
    "true", "TRUE", "True ", " true", "false", "yes", "on", "t", "${VAR}", "10485760  # 10MB",
    "SYNC_FLUSH", "sync_flush", "SYNC_FLUSH ", '"SYNC_FLUSH"', "ASYNC_FLUSH", "SLAVE",
    "SYNC_MASTER", "ASYNC_MASTER\t", "MASTER", "PROM", "prom", "OTLP_GRPC", "LOG", "2", "3", "9",
    "default", "defaultRocksDB", "DEFAULTROCKSDB", "defaultRockDB", "04", "04;16", "04; 16",
    "4:00", "1s 5s", "1s  5s", "a b", "'quoted'", "x // y", "\\u0661\\u0662", "\\uff11", "\u0661",
    "\\ud835\\udfd9", "t\\u0072ue", "\\t7", "7\\ ", "\\ 7", "7\\\\", "a\\=b", "é", "消息", "\\x41",
]  # fmt: skip
SEPARATORS = ["=", ":", " = ", " ", "\t", "\f", "= ", " :", "==", ":=", "", " \\\n = ", "=\\\r\n  "]
ENDS = ["\n", "\n", "\r\n", "\r", "\n\n", " \n", "\t\n", "\\\n", "\\\\\n", "\\\r\n ", "\n#", ""]
ODD_LINES = [
    "# a comment\n", "  ! another = one\n", "#a\\\nbrokerId=5\n", "\\\n", "   \\\n  \n", "=x\n",
    ":\n", "\f\n", "this is prose\n", "\\u0062rokerId=3\n", "\ufeffbrokerId=3\n", "a\\:b=c\n",
    "fileReserved\\\n   Time=5\n", "brokerId=1\\\n\\\n2\n", "brokerId=4\\\n#5\n", "\\=\\:=1\n",
    "bad=\\u12\n", "bad=\\u00zz\n", "\\", "x=\\u12 34\n",
]  # fmt: skip


def made_up(random_: random.Random) -> bytes:
    """Return one file."""
    lines = list[str]()
    for _ in range(random_.randrange(1, 9)):
        if random_.random() < 0.15:
            lines.append(random_.choice(ODD_LINES[:-4] if random_.random() < 0.9 else ODD_LINES))
            continue
        key = random_.choice(OURS if random_.random() < 0.6 else KEYS)
        indent = random_.choice(["", "", "", " ", "\t", "\f "])
        value = random_.choice(VALUES)
        if random_.random() < 0.1:
            value = "".join(random_.choices("01 9#=:\\\t\f\ntue.;'\"", k=random_.randrange(1, 8)))
        parts = indent, key, random_.choice(SEPARATORS), value, random_.choice(ENDS)
        lines.append("".join(parts))
    return "".join(lines).encode(random_.choice(["utf-8", "utf-8", "utf-8-sig"]))


@pytest.fixture(scope="module")
def program(rocketmq: RocketMQ) -> JavaProgram:
    return JavaProgram(FOLDER, "interop.Settings", rocketmq.program.version)


def answers(program: JavaProgram, home: Path, texts: list[bytes]) -> Iterator[dict[str, Any]]:
    """Yield RocketMQ's defaults, then what it makes of each file."""
    given = b"".join(base64.b64encode(text) + b"\n" for text in texts)
    command = program.command(home, ["-Xmx256m"])
    done = subprocess.run(
        command, input=given, capture_output=True, check=True, timeout=300,
        env=program.environment(),
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == len(texts) + 1
    yield from map(json.loads, lines)


def as_java(value: object) -> object:
    """Return a value of ours so that it can be compared with Java's as text."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, float) else str(value)


def same(ours: object, theirs: object) -> bool:
    shown = as_java(ours)
    if isinstance(shown, float):
        java = float(str(theirs).replace("Infinity", "inf"))
        return shown == java or (shown != shown and java != java)  # noqa: PLR0124 - NaN
    return shown == theirs


def test_ten_thousand_files_are_read_as_rocketmq_reads_them(
    program: JavaProgram, tmp_path: Path
) -> None:
    seeded = random.Random(42)
    texts = [made_up(seeded) for _ in range(FILES)]
    found = answers(program, tmp_path, texts)
    defaults = next(found)
    refused = changed = 0
    for number, (text, theirs) in enumerate(zip(texts, found, strict=True)):
        path = tmp_path / "broker.conf"
        path.write_bytes(text)
        if "refused" in theirs:
            refused += 1
            with pytest.raises(StoreConfigError, match="not a properties file"):
                BrokerConf.read(path)
            continue
        conf = BrokerConf.read(path)
        # No setting has the empty name, which Java finds where a file ends in a continuation.
        ours, others = ({**each, "": ""} for each in (conf.values, theirs["properties"]))
        assert ours == others or conf.values == theirs["properties"], (number, text)
        changed += bool(theirs["settings"])
        compare(conf, {**defaults, **theirs["settings"]}, defaults, text)
    assert refused > FILES // 200
    assert changed > FILES // 3


def compare(
    conf: BrokerConf, theirs: dict[str, object], defaults: dict[str, object], text: bytes
) -> None:
    """Compare every setting that a file names; the others have their defaults in both."""
    keys, known = broker_keys(), StoreConfig.known_keys()
    whole: StoreConfig | None
    try:
        whole = conf.settings()
    except StoreConfigError:  # settings that contradict each other, each right by itself
        whole = None
    for name, value in theirs.items():
        key = keys[name]
        if name not in conf.values:
            assert value == defaults[name], (name, text)
            continue
        judged = judge(name, conf.values[name], key)
        if judged.outcome is Outcome.NOT_OURS or name in MEANT:
            continue
        ours = defaults[name] if judged.value is None else judged.value
        assert same(ours, value), (name, text, judged)
        silent = judged.outcome is Outcome.TAKEN
        if whole is not None and name in known and not (value == "" and silent):
            held = getattr(whole, known[name])
            unset = held is None and judged.value is None  # of ours, which has no such default
            assert unset or same(held, value), (name, text)


MEANT = {
    "deleteWhen", "messageDelayLevel", "storeType", "timerPrecisionMs", "rocksdbCompressionType",
    "bottomMostCompressionTypeForConsumeQueueStore", "metricsExporterType",
}  # fmt: skip
"""Texts on which RocketMQ acts by parts, or of which it knows some, a number that its setter
rounds, and a constant that may be given by its number: what becomes of the texts is in
``tests/store/settings/test_broker_conf.py``; cqstore has no setting of the others."""


def test_every_setting_of_rocketmq_is_in_the_table(program: JavaProgram, tmp_path: Path) -> None:
    (defaults,) = answers(program, tmp_path, [])
    keys = broker_keys()
    assert [name for name in defaults if name not in keys or keys[name].until is not None] == []
    ours = {key: getattr(StoreConfig(), name) for key, name in StoreConfig.known_keys().items()}
    unlike = {
        key: (value, defaults[key]) for key, value in ours.items()
        if key in defaults and value is not None and not same(value, defaults[key])
    }  # fmt: skip
    assert unlike == {}


def test_the_defaults_of_named_keys_are_rocketmqs(program: JavaProgram, tmp_path: Path) -> None:
    (defaults,) = answers(program, tmp_path, [])
    named = {name: key.default for name, key in ignored_keys().items() if key.is_named}
    unlike = {
        name: (ours, defaults.get(name)) for name, ours in named.items()
        if not same("null" if ours is None else ours, defaults.get(name))
    }  # fmt: skip
    assert unlike == {}


GIVEN = {
    "rocksdbCompressionType": "zstd",
    "bottomMostCompressionTypeForConsumeQueueStore": "lz4hc",
    "rocksdbMaxSizeAmplificationPercent": 40,
}


@pytest.mark.disk  # log files of a gigabyte
@pytest.mark.parametrize("changes", [{}, {"rocksdbCompressionType": "LZ4"}])
def test_rocksdb_gets_the_same_options_from_both(
    rocketmq: RocketMQ, tmp_path: Path, changes: dict[str, object]
) -> None:
    """As RocksDB wrote them down: a compression in capitals is none in RocketMQ."""
    given = GIVEN | changes
    rocketmq.append(tmp_path / "theirs", "defaultRocksDB", [("T", 0)], 1, crash=False, **given)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    with MessageStore.open(
        tmp_path / "ours", BrokerConf.read(conf).settings(), backend="rocksdb"
    ) as store:
        assert store.put_message(Message("T", b"body")).ok
    theirs, ours = (written(tmp_path / name / "consumequeue") for name in ("theirs", "ours"))
    section = 'CFOptions "default"'
    names = ("compression", "bottommost_compression", "universal.max_size_amplification_percent")
    expected = ["kNoCompression" if changes else "kZSTD", "kLZ4HCCompression", "40"]
    assert [theirs[section, name] for name in names] == expected
    assert [ours[section, name] for name in names] == expected
