"""What the tests of preflight share: a machine that answers as told, and damage by hand."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cqstore.migration.preflight.machine_facts import DiskFacts, MachineLimits
from cqstore.migration.preflight.preflight_report import PreflightFinding, PreflightReport
from tests.kit.file_queues import UNIT, Row

Golden = Callable[[str], Path]


@dataclass
class FakeMachine(MachineLimits):
    """A machine with room for everything, unless said otherwise."""

    maps: int | None = 1 << 40
    soft: int | None = None
    hard: int | None = None
    free_bytes: int = 1 << 60
    free_inodes: int | None = 1 << 40
    memory: int | None = 1 << 40
    core_count: int = 2

    def max_map_count(self) -> int | None:
        return self.maps

    def open_files(self) -> tuple[int | None, int | None]:
        return self.soft, self.hard

    def disk(self, folder: Path) -> DiskFacts | None:
        assert folder.is_dir()
        return DiskFacts(self.free_bytes, self.free_inodes)

    def memory_bytes(self) -> int | None:
        return self.memory

    def cores(self) -> int:
        return self.core_count


def the(report: PreflightReport, code: str) -> PreflightFinding:
    """Return the only finding with ``code``."""
    found = [finding for finding in report.findings if finding.code == code]
    assert len(found) == 1, [finding.code for finding in report.findings]
    return found[0]


def codes(findings: Iterable[PreflightFinding]) -> list[str]:
    return sorted(finding.code for finding in findings)


def names(finding: PreflightFinding) -> list[str]:
    return [each.name for each in finding.affected]


def topics_of(root: Path) -> dict[str, object]:
    """Return the broker's table of topics."""
    table: dict[str, object] = json.loads((root / "config" / "topics.json").read_text())[
        "topicConfigTable"
    ]
    return table


def write_topics(root: Path, topics: Iterable[str]) -> None:
    path = root / "config" / "topics.json"
    path.parent.mkdir(exist_ok=True)
    table = {topic: {"topicName": topic, "attributes": {}} for topic in topics}
    path.write_text(json.dumps({"dataVersion": {"counter": 1}, "topicConfigTable": table}))


def first_file(root: Path, topic: str, queue_id: int = 0) -> Path:
    """Return the queue's first file."""
    return min((root / "consumequeue" / topic / str(queue_id)).iterdir())


def overwrite(path: Path, at: int, rows: Iterable[Row]) -> None:
    """Write rows of 20 bytes over those of a queue file from row ``at`` on."""
    with path.open("r+b") as file:
        file.seek(at * UNIT.size)
        file.write(b"".join(UNIT.pack(*row) for row in rows))


def rows_of(path: Path) -> list[Row]:
    return list(UNIT.iter_unpack(path.read_bytes()))
