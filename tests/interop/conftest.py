"""RocketMQ, built once a run; where it cannot be had, that is said loudly."""

import pytest

from bench.peer.maven import UnavailableError
from tests.interop.brokers import VERSION, Brokers
from tests.interop.rocketmq import RocketMQ

_missing: list[str] = []


@pytest.fixture(scope="session")
def rocketmq() -> RocketMQ:
    return _built("5.5.1")


@pytest.fixture(scope="session")
def rocketmq_533() -> RocketMQ:
    return _built("5.3.3")


@pytest.fixture(scope="session")
def brokers() -> Brokers:
    try:
        return Brokers.build()
    except UnavailableError as exc:
        _missing.append(f"a broker of RocketMQ {VERSION}: {exc}")
        pytest.skip("a broker of RocketMQ cannot be had")


def _built(version: str) -> RocketMQ:
    try:
        return RocketMQ.build(version)
    except UnavailableError as exc:
        _missing.append(f"RocketMQ {version}: {exc}")
        pytest.skip(f"RocketMQ {version} cannot be had")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _missing:
        terminalreporter.section("INTEROP WAS NOT RUN", red=True)
        for line in _missing:
            terminalreporter.write_line(line)
