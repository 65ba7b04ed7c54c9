"""What a client of a broker asks it, over RocketMQ's remoting wire."""

import asyncio

from cqstore.replication.synchronize.broker_client import SUCCESS, BrokerClient
from tests.interop.brokers import Broker

_QUERY_CONSUMER_OFFSET, _GET_MAX_OFFSET = 14, 30
_QUERY_NOT_FOUND = 22


def consumer_offset(broker: Broker, group: str, topic: str, queue_id: int = 0) -> int | None:
    """Return where a consumer of ``group`` goes on; ``None``: it would start over."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
    return _ask(broker, _QUERY_CONSUMER_OFFSET, fields | {"setZeroIfNotFound": "false"})


def max_offset(broker: Broker, topic: str, queue_id: int = 0) -> int:
    """Return how many messages a queue has had."""
    found = _ask(broker, _GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
    assert found is not None
    return found


def _ask(broker: Broker, code: int, fields: dict[str, str]) -> int | None:
    async def requested() -> int | None:
        async with BrokerClient("127.0.0.1", broker.port) as client:
            answer = await client.request(code, fields)
        assert answer.code in {SUCCESS, _QUERY_NOT_FOUND}, answer
        return int(answer.fields["offset"]) if answer.code == SUCCESS else None

    return asyncio.run(requested())
