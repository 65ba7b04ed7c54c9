"""Directs RocketMQ slave brokers to a feed: sends each the address where the log is served.

A broker ignores its own ``haMasterAddress``, because it applies the setting before the client that
would use it exists. A name server can only supply the address of a master that is registered there.
A request to the broker can set any address. A broker forgets the address when it stops, so it is
sent periodically.

Source: RocketMQ ``AdminBrokerProcessor.updateBrokerHaInfo``, ``DefaultHAService.init``.
"""

import asyncio
import ipaddress
from collections.abc import Callable
from typing import NoReturn

from cqstore.replication.endpoint import endpoint, reason_of
from cqstore.replication.synchronize.broker_client import BrokerClient
from cqstore.store.errors import StoreConfigError, StoreError

_EXCHANGE_BROKER_HA_INFO = 906
_ADDRESS_FIELD = "masterHaAddress"
_NOT_DIRECTED = "cannot be directed to this feed"
LEAD_SECONDS = 30.0
"""Time between two requests to a broker: a restarted broker has no master for at most that long."""
RETRY_SECONDS = 5.0
"""Time between two requests after the last one failed."""


class SlaveBroker:
    """One broker that is to follow the feed. One task at a time."""

    def __init__(self, host: str, port: int, report: Callable[[str], None]) -> None:
        """Direct the broker whose ``listenPort`` is ``port``; ``report`` receives changes."""
        self._host, self._port, self._report = host, port, report
        self._reported = ""

    async def lead(self, ha_address: str) -> NoReturn:
        """Send ``ha_address`` (``HOST:PORT``) to the broker periodically, until cancelled.

        A failure is retried; it is reported only if it differs from the last report.
        """
        while True:
            try:
                is_led = await self._send_address(ha_address)
            except (OSError, UnicodeError, StoreError) as exc:
                is_led = False
                self._notify(f"{_NOT_DIRECTED}: {reason_of(exc)}")
            await asyncio.sleep(LEAD_SECONDS if is_led else RETRY_SECONDS)

    async def _send_address(self, ha_address: str) -> bool:
        """Return whether the broker accepted the address."""
        async with BrokerClient(self._host, self._port) as client:
            what = "the master address"
            answer = await client.request_ok(what, _EXCHANGE_BROKER_HA_INFO)
            if _ADDRESS_FIELD in answer.fields:
                self._notify(f"{_NOT_DIRECTED}: it is a master (brokerId=0)")
                return False
            what = "a change of the master address"
            fields = {_ADDRESS_FIELD: ha_address}
            await client.request_ok(what, _EXCHANGE_BROKER_HA_INFO, fields)
            self._notify(f"directed to {ha_address}")
            return True

    def _notify(self, sentence: str) -> None:
        if sentence != self._reported:
            self._reported = sentence
            self._report(f"slave {endpoint(self._host, self._port)}: {sentence}")


def ha_address(host: str, port: int) -> str:
    """Return the address at which slaves connect to ``host``, in RocketMQ's form.

    Raises:
        StoreConfigError: ``host`` stands for all addresses of this machine.
    """
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return endpoint(host, port)
    if ip.is_unspecified:
        raise StoreConfigError(
            f"slaves cannot connect to {host}, which means all addresses of this machine: use"
            " --listen with the address at which they reach this machine"
        )
    return endpoint(host, port)
