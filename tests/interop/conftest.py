"""RocketMQ, built once a run; where it cannot be had, that is said loudly."""

from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

import pytest

from cqstore.migration.follow import move
from tests.interop.brokers import VERSION, Brokers
from tests.interop.other_clients import GoClient, PythonClient
from tests.interop.release import Release
from tests.interop.rocketmq import RocketMQ
from tools.bench.peer.maven import UnavailableError

_missing: list[str] = []
_Built = TypeVar("_Built")


def _built(what: str, build: Callable[[], _Built]) -> _Built:
    """Return what ``build`` makes; skip the test if it is not available."""
    try:
        return build()
    except UnavailableError as exc:
        _unavailable(what, exc)


@pytest.fixture(scope="session")
def rocketmq() -> RocketMQ:
    return _built("RocketMQ 5.5.1", lambda: RocketMQ.build("5.5.1"))


@pytest.fixture(scope="session")
def rocketmq_533() -> RocketMQ:
    """An older one, for what both ends of a connection have to agree on."""
    return _built("RocketMQ 5.3.3", lambda: RocketMQ.build("5.3.3"))


@pytest.fixture(scope="session")
def release(request: pytest.FixtureRequest) -> Release:
    """The release that is the parameter."""
    return _built(f"RocketMQ {request.param}", lambda: Release.build(request.param))


@pytest.fixture(scope="session")
def brokers() -> Brokers:
    return _built(f"a broker of RocketMQ {VERSION}", Brokers.build)


@pytest.fixture(scope="session")
def brokers_of(request: pytest.FixtureRequest) -> Brokers:
    """Brokers of the release that is the parameter."""
    version = request.param
    return _built(f"a broker of RocketMQ {version}", lambda: Brokers.build(version))


@pytest.fixture(scope="session")
def go_client() -> GoClient:
    return _built("rocketmq-client-go", GoClient.build)


@pytest.fixture(scope="session")
def python_client() -> PythonClient:
    return _built("the Python package rocketmq", PythonClient.build)


@pytest.fixture(scope="module")
def names(brokers: Brokers) -> Iterator[dict[str, object]]:
    """The setting of a broker by which clients find it."""
    with brokers.name_server() as port:
        yield {"namesrvAddr": f"127.0.0.1:{port}"}


@pytest.fixture
def brokers_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step waits half a minute for tables: ``Brokers.running`` waits for the process."""
    monkeypatch.setattr("cqstore.broker.conversion.broker_process._SETTLE_SECONDS", 0.5)
    monkeypatch.setattr(move, "_LEVEL_SECONDS", 0.0)


def _unavailable(what: str, exc: UnavailableError) -> NoReturn:
    """Skip the test; the end of the run says it once more."""
    _missing.append(f"{what}: {exc}")
    pytest.skip(f"{what} cannot be had")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _missing:
        terminalreporter.section("INTEROP WAS NOT RUN", red=True)
        for line in _missing:
            terminalreporter.write_line(line)
