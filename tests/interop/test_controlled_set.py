"""A set under a controller moves to RocksDB and back, one broker after the other, under traffic.

The steps are those of "Runbook: a set under a controller" in ``docs/migration.md``, in their order.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.brokers import Brokers
from tests.interop.controlled_set import (
    CLUSTER,
    GROUP,
    NAME,
    TOPIC,
    ControlledSet,
    Replica,
    Traffic,
    until,
)
from tests.kit.commands import COMMAND

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(2400)]
LIMIT_SECONDS = 300


def cqstore(*words: object, code: int = 0) -> str:
    """Run a command as an operator does; return its output."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)],
        capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def log_side(replica: Replica) -> dict[str, bytes]:
    """Log, epochs, identity: what a controller and the other replicas rely on."""
    root = replica.root
    files = [*(root / "commitlog").iterdir(), *root.glob("epochFileCheckpoint*")]
    return {path.name: path.read_bytes() for path in [*files, *root.glob("brokerIdentity*")]}


def move(replica: Replica) -> None:
    """Steps 2 and 3 of the runbook, on a broker that is stopped."""
    root, conf = replica.root, ("--config", replica.conf)
    before = log_side(replica)
    cqstore("migrate", "preflight", root, "--broker-conf", replica.conf)
    cqstore("migrate", "plan", root, *conf)
    cqstore("migrate", "run", root, "--master", "none")
    cqstore("migrate", "verify", root, "--master", "none")
    cqstore("migrate", "switch", root, *conf)
    assert log_side(replica) == before
    replica.settings["storeType"] = "defaultRocksDB"


def move_back(replica: Replica) -> None:
    before = log_side(replica)
    cqstore("migrate", "rollback", replica.root, "--config", replica.conf)
    assert log_side(replica) == before
    replica.settings["storeType"] = "default"


def one_after_the_other(made: ControlledSet, traffic: Traffic, kind: str) -> None:
    """Slaves first, then an election, then the former master."""
    change = move if kind == "move" else move_back
    first, *others = made.slaves
    for slave in (first, *others):
        with traffic.step(f"{kind}: slave stopped"):
            made.stop(slave)
        change(slave)
        with traffic.step(f"{kind}: slave started"):
            made.start(slave)
    former = made.master
    assert former is not None
    with traffic.step(f"{kind}: election"):
        traffic.do("elect", made.controller, CLUSTER, NAME, first.id)
        until(lambda: made.master is first and len(made.in_sync) == 3, made.roles)
    with traffic.step(f"{kind}: former master stopped"):
        made.stop(former)
    change(former)
    with traffic.step(f"{kind}: former master started"):
        made.start(former)


def positions(replica: Replica | None) -> dict[str, int]:
    """Return the offsets of the group, as the broker has them."""
    assert replica is not None
    text = replica.do("metadata")["offsets"].get(f"{TOPIC}@{GROUP}", "")
    return {queue: int(offset) for queue, offset in re.findall(r"(\d+)=(\d+)", text)}


def test_a_set_moves_one_broker_after_the_other(tmp_path: Path, brokers: Brokers) -> None:
    with ControlledSet.running(brokers, tmp_path) as made:
        made.make_topic()
        with Traffic.running(brokers, made.names) as traffic:
            until(lambda: traffic.do("figures")["received"] > 100, lambda: traffic.do("figures"))
            one_after_the_other(made, traffic, "move")
            assert {each.settings["storeType"] for each in made.replicas} == {"defaultRocksDB"}
            noted = tmp_path / "figures.json"
            noted.write_text(json.dumps([traffic.do("figures"), traffic.gaps], indent=1))
            one_after_the_other(made, traffic, "back")
            figures = traffic.do("quiet")
            noted.write_text(json.dumps([figures, traffic.gaps], indent=1))
            assert figures["missing"] == []
            assert figures["twice"] <= figures["failed"]
            until(lambda: all(positions(each) == positions(made.master) for each in made.replicas))
            assert made.master is not None
            ends = {str(n): made.master.do("pull", TOPIC, n, 0)["max"] for n in range(4)}
            until(lambda: positions(made.master) == ends, lambda: (positions(made.master), ends))
        replicas = list(made.replicas)
        for each in replicas:
            each.stack.close()
            each.broker = None
    first, *others = [each.root for each in replicas]
    for other in others:
        found = cqstore("ha", "check", first, other)
        assert re.search(r"own records +0 +0", found), found
    for root in (first, *others):
        cqstore("check", root)
