"""Slave brokers are given the feed's address, as RocketMQ's ``AdminBrokerProcessor`` takes it."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from cqstore.replication.commands.feed import _slaves
from cqstore.replication.feed import slave_brokers
from cqstore.replication.feed.slave_brokers import SlaveBroker, ha_address
from cqstore.store.errors import StoreConfigError
from tests.kit.wire_broker import Fields, WireBroker

CODE = 906
FEED = "10.0.0.5:10912"


class Slave(WireBroker):
    """A broker that takes an address, or has one: field by field what RocketMQ answers."""

    def __init__(self) -> None:
        super().__init__()
        self.is_master = False
        self.given: list[str] = []
        self.refusal: tuple[int, str] | None = None

    def plain(self, code: int, number: int, fields: Fields) -> bytes:
        assert code == CODE
        if self.refusal is not None:
            return self.say(number, code=self.refusal[0], remark=self.refusal[1])
        if "masterHaAddress" in fields:
            assert fields.keys() == {"masterHaAddress"}
            self.given.append(fields["masterHaAddress"])
        elif self.is_master:
            own = {"masterHaAddress": "10.0.0.9:10912", "masterFlushOffset": "0",
                   "masterAddress": "10.0.0.9:10911"}  # fmt: skip
            return self.say(number, fields=own)
        return self.say(number)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests follow each other without a wait."""
    monkeypatch.setattr(slave_brokers, "LEAD_SECONDS", 0.0)
    monkeypatch.setattr(slave_brokers, "RETRY_SECONDS", 0.0)


async def led_until(
    port: int, said: list[str], is_done: Callable[[], bool], host: str = "127.0.0.1"
) -> None:
    """Lead the broker at ``port`` until ``is_done``, asked behind each turn of the loop.

    Not once in a while: some of what is waited for lasts a few turns.
    """
    task = asyncio.ensure_future(SlaveBroker(host, port, said.append).lead(FEED))
    try:
        async with asyncio.timeout(30):
            while not is_done():
                assert not task.done(), task
                await asyncio.sleep(0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.usefixtures("at_once")
def test_a_slave_is_given_the_address_again_and_again_and_that_is_told_once() -> None:
    said: list[str] = []

    async def story() -> int:
        async with Slave() as broker:
            await led_until(broker.port, said, lambda: len(broker.given) == 5)
            assert set(broker.given) == {FEED}
            return broker.port

    port = asyncio.run(story())
    assert said == [f"slave 127.0.0.1:{port}: directed to {FEED}"]


@pytest.mark.usefixtures("at_once")
async def test_a_master_is_not_led_until_it_is_a_slave() -> None:
    said: list[str] = []
    async with Slave() as broker:
        broker.is_master = True
        await led_until(broker.port, said, lambda: len(broker.requested) > 5)
        assert broker.given == []
        assert len(said) == 1
        assert "it is a master (brokerId=0)" in said[0]
        broker.is_master = False
        await led_until(broker.port, said, lambda: bool(broker.given))


@pytest.mark.usefixtures("at_once")
def test_a_broker_that_refuses_or_is_gone_is_asked_again() -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async def story() -> int:
        await led_until(port, said, lambda: bool(said))
        assert said.pop().startswith(f"slave 127.0.0.1:{port}: cannot be directed to this feed: ")
        async with Slave() as broker:
            broker.refusal = (16, "no permission for this")
            turns = iter(range(1000))

            def is_led() -> bool:
                if next(turns) == 500:
                    broker.refusal = None
                return len(broker.given) > 1

            await led_until(broker.port, said, is_led)
            return broker.port

    at = asyncio.run(story())
    assert said == [
        f"slave 127.0.0.1:{at}: cannot be directed to this feed: the broker rejected the"
        " request for the master address (code 906) with response code 16: no permission for this",
        f"slave 127.0.0.1:{at}: directed to {FEED}",
    ]


async def test_a_broker_that_is_led_is_asked_later_than_one_that_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(slave_brokers, "LEAD_SECONDS", 3600.0)
    monkeypatch.setattr(slave_brokers, "RETRY_SECONDS", 0.0)
    async with Slave() as broker:
        broker.refusal = (1, "not yet")
        await led_until(broker.port, said, lambda: len(broker.requested) > 3)
        broker.refusal = None
        turns = iter(range(1000))
        await led_until(broker.port, said, lambda: bool(broker.given) and next(turns) == 500)
        assert broker.given == [FEED]


def test_a_name_that_no_machine_can_have_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_brokers, "RETRY_SECONDS", 0.0)
    said: list[str] = []

    asyncio.run(led_until(1, said, lambda: bool(said), host="a..b"))
    assert "cannot be directed to this feed" in said[0]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("data", [b"\x00\x00\x00\x02abcd", b"HTTP/1.1 400 Bad\r\n\r\n", b""])
async def test_what_is_no_broker_is_told(data: bytes) -> None:
    said: list[str] = []
    async with Slave() as broker:
        broker.instead[CODE] = lambda _number, _fields: data
        await led_until(broker.port, said, lambda: len(broker.requested) > 2)
        assert broker.given == []
    assert len(said) == 1
    assert "cannot be directed to this feed" in said[0]


@pytest.mark.parametrize(
    ("host", "wanted"),
    [("10.0.0.5", "10.0.0.5:7"), ("feeder", "feeder:7"), ("fd00::5", "[fd00::5]:7")],
)
def test_the_address_is_as_rocketmq_writes_it(host: str, wanted: str) -> None:
    assert ha_address(host, 7) == wanted


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_slaves_cannot_be_led_to_all_addresses(host: str) -> None:
    with pytest.raises(StoreConfigError, match="--listen"):
        ha_address(host, 7)
    with pytest.raises(StoreConfigError, match="--listen"):
        _slaves(["b:10911"], host, None)
    assert _slaves([], host, Path("pem")) == []


def test_a_slave_is_an_address_and_follows_without_tls() -> None:
    with pytest.raises(typer.BadParameter, match="for --slave: expected HOST:PORT"):
        _slaves(["10911"], "10.0.0.5", None)
    with pytest.raises(typer.BadParameter, match="do not support TLS"):
        _slaves(["b:10911"], "10.0.0.5", Path("pem"))
    assert len(_slaves(["b:10911", "[fd00::5]:10911"], "10.0.0.5", None)) == 2
