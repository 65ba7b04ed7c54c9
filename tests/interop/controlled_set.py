"""A set of brokers of RocketMQ's under a controller, and clients of it that never stop."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop.brokers import Broker, Brokers
from tests.interop.started import pairs, started
from tests.kit import waiting

if TYPE_CHECKING:
    import subprocess

SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000}
TOPIC, GROUP, CLUSTER, NAME = "t", "g", "c", "a"
SECONDS = 400
until = partial(waiting.until, seconds=SECONDS, pause=0.2)
"""Each look is a question to every broker, which must not take the time that they need."""


@dataclass
class Replica:
    """One broker of the set: its folder, its settings, and the broker while it runs."""

    root: Path
    settings: dict[str, object]
    broker: Broker | None = None
    stack: ExitStack = field(default_factory=ExitStack)
    id: int = 0
    """As the controller gave it."""

    @property
    def conf(self) -> Path:
        """Its configuration file, as the commands of ``cqstore`` read it."""
        return self.root.with_suffix(".conf")

    def do(self, *words: object) -> dict[str, Any]:
        """Ask the broker, which runs."""
        assert self.broker is not None
        return self.broker.do(*words)

    @property
    def role(self) -> dict[str, Any]:
        return self.do("role")


class ControlledSet:
    """Three replicas, of which the controller makes the first one to start the master."""

    def __init__(self, brokers: Brokers, folder: Path, ports: dict[str, int]) -> None:
        self._brokers = brokers
        self.controller = f"127.0.0.1:{ports['controller']}"
        self.names = f"127.0.0.1:{ports['port']}"
        common = {
            **SIZES, "namesrvAddr": self.names, "brokerIP2": "127.0.0.1", "storeType": "default",
            "enableControllerMode": "true", "controllerAddr": self.controller,
            "allAckInSyncStateSet": "true", "minInSyncReplicas": 2, "totalReplicas": 3,
            "haSendHeartbeatInterval": 1000,
        }  # fmt: skip
        self.replicas = [Replica(folder / name, dict(common)) for name in ("a", "b", "c")]

    @classmethod
    @contextmanager
    def running(cls, brokers: Brokers, folder: Path) -> Iterator["ControlledSet"]:
        """Start a controller and the set; stop what still runs at the end."""
        program = replace(brokers.program, main="interop.NameServer")
        with started(program, ["controller"]) as process, ExitStack() as stack:
            assert process.stdout is not None
            made = cls(brokers, folder, json.loads(process.stdout.readline()))
            for each in made.replicas:
                stack.push(each.stack)
                made.start(each)
            until(lambda: len(made.in_sync) == len(made.replicas), made.roles)
            yield made

    def make_topic(self) -> None:
        """Make the topic of the traffic; return when clients find it, and slaves have it."""
        master = self.master
        assert master is not None
        master.do("topic", TOPIC)

        def is_routed() -> bool:  # a broker registers every half minute by itself
            master.do("register")
            return bool(master.do("routed", TOPIC)["routed"])

        until(is_routed)
        until(lambda: all(TOPIC in each.do("metadata")["topics"] for each in self.replicas))

    def start(self, replica: Replica) -> None:
        """Start a broker; return when it is in the set in sync, or the master."""
        words = "".join(f"{word}\n" for word in pairs(replica.settings))
        replica.conf.write_text(f"storePathRootDir={replica.root}\n{words}")
        replica.stack = ExitStack()
        context = self._brokers.running(replica.root, **replica.settings)
        replica.broker = replica.stack.enter_context(context)
        until(lambda: replica.role["state"] == "RUNNING", lambda: replica.role)
        replica.settings["listenPort"] = replica.broker.port
        replica.id = replica.role["id"]
        until(lambda: replica.id in self.in_sync, self.roles)

    def stop(self, replica: Replica) -> None:
        """Stop a broker; return when the master no longer waits for it."""
        replica.stack.close()
        replica.broker = None
        until(lambda: self.master is not None and replica.id not in self.in_sync, self.roles)

    @property
    def master(self) -> Replica | None:
        """The running broker that the controller made the master."""
        running = [each for each in self.replicas if each.broker is not None]
        return next((each for each in running if each.role["master"]), None)

    @property
    def in_sync(self) -> list[int]:
        """The replicas that acknowledge each message, as the master knows them."""
        master = self.master
        return [] if master is None else master.role["inSync"]

    def roles(self) -> list[dict[str, Any]]:
        """Return what each running broker says of itself."""
        return [each.role for each in self.replicas if each.broker is not None]

    @property
    def slaves(self) -> list[Replica]:
        """All others than the master."""
        return [each for each in self.replicas if each is not self.master]


class Traffic:
    """A producer and a consumer, see ``Traffic.java``."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.gaps: dict[str, float] = {}
        """Of each step, the longest time without an acknowledgement, in seconds."""

    @classmethod
    @contextmanager
    def running(cls, brokers: Brokers, names: str) -> Iterator["Traffic"]:
        program = replace(brokers.program, main="interop.Traffic")
        with started(program, [names, TOPIC, GROUP]) as process:
            traffic = cls(process)
            yield traffic
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(SECONDS) == 0

    def do(self, *words: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the clients have ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Note the longest time without service while the block runs, and until service is back."""
        self.do("gap")
        yield
        before = self.do("figures")["acknowledged"]
        until(lambda: self.do("figures")["acknowledged"] > before, lambda: self.do("figures"))
        found = self.do("gap")
        self.gaps[name] = max(self.gaps.get(name, 0.0), found["gapMs"] / 1000)
