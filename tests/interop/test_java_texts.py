"""Texts that are read as RocketMQ reads them: the answers kept in tests/kit, and random bytes."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.java_numbers import parse_int
from cqstore.store.record.properties import decode_properties
from tests.interop.rocketmq import FOLDER, RocketMQ
from tests.kit.java_texts import LEVELS, PROPERTIES
from tools.bench.peer.maven import JavaProgram

pytestmark = pytest.mark.interop
COUNT = 20_000
EDGES = bytes.fromhex("0041808f909fa0bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5f8ff")
"""Bytes at the edges of what each byte of UTF-8 can be."""


def answers(rocketmq: RocketMQ, home: Path, kind: str, texts: list[str]) -> list[Any]:
    """Return RocketMQ's answer for each text."""
    program = JavaProgram(FOLDER, "interop.Texts", rocketmq.program.version)
    done = subprocess.run(
        program.command(home, ["-Xmx256m"]),
        input="".join(f"{json.dumps([kind, text])}\n" for text in texts),
        capture_output=True, text=True, check=True, timeout=300, env=program.environment(),
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_kept_answers_are_rocketmqs(rocketmq: RocketMQ, tmp_path: Path) -> None:
    levels = answers(rocketmq, tmp_path, "level", [text for text, _ in LEVELS])
    assert levels == [level for _, level in LEVELS]
    found = answers(rocketmq, tmp_path, "properties", [data.hex() for data, _ in PROPERTIES])
    assert found == [properties for _, properties in PROPERTIES]


def test_each_character_is_a_digit_here_if_it_is_one_there(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    texts = [*map(chr, range(0x20000))]
    assert answers(rocketmq, tmp_path, "level", texts) == [*map(parse_int, texts)]


def test_random_bytes_have_the_same_properties(rocketmq: RocketMQ, tmp_path: Path) -> None:
    seeded = random.Random(42)
    some = [
        bytes(seeded.choices(EDGES + b"\x01\x02" * 5, k=seeded.randrange(15))) for _ in range(COUNT)
    ]
    some += [b"a\x01" + bytes(seeded.choices(EDGES, k=seeded.randrange(1, 7))) for _ in some]
    found = answers(rocketmq, tmp_path, "properties", [data.hex() for data in some])
    for data, properties in zip(some, found, strict=True):
        assert decode_properties(data) == properties, data
