"""The numbers of a feeding master are taken from their least to their most."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from cqstore.replication.feed.feed_settings import FeedSettings

INT, LONG = (1 << 31) - 1, (1 << 63) - 1


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("ha_send_heartbeat_interval", 1, INT),
        ("ha_housekeeping_interval", 1, INT),
        ("ha_transfer_batch_size", 1, None),
        ("max_ha_transfer_byte_in_second", 1, LONG),
        ("ha_listen_port", None, 65_535),
        ("listen_port", None, 65_535),
    ],
)
def test_a_number_has_a_least_and_a_most(name: str, least: int | None, most: int | None) -> None:
    for limit, beyond in ((least, -1), (most, 1)):
        if limit is not None:
            assert getattr(FeedSettings.model_validate({name: limit}), name) == limit
            with pytest.raises(ValidationError):
                FeedSettings.model_validate({name: limit + beyond})


@pytest.mark.parametrize(
    ("conf", "port"),
    [  # as BrokerStartup of RocketMQ 5.5.1 has it
        ("", 10912), ("listenPort=20911", 20912), ("haListenPort=7", 7),
        ("listenPort=20911\nhaListenPort=7", 7), ("haListenPort=0\nlistenPort=30000", 30001),
        ("haListenPort=-1", 10912), ("haListenPort=x\nlistenPort=5", 6),
    ],
)  # fmt: skip
def test_slaves_come_to_the_port_that_the_broker_has(tmp_path: Path, conf: str, port: int) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(conf)
    assert FeedSettings.read(path).port == port
    assert FeedSettings().port == 10912
