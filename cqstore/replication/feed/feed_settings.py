"""FeedSettings: RocketMQ's keys of a master that feeds slaves, with its defaults."""

from pydantic import Field

from cqstore.replication.ha_settings import HaSettings
from cqstore.replication.wire import FRAME_HEAD, MAX_BODY_BYTES
from cqstore.store.java_numbers import INT_MAX, LONG_MAX


class FeedSettings(HaSettings):
    """Settings of a master that feeds slaves; frozen. Includes the times of ``HaSettings``."""

    ha_send_heartbeat_interval: int = Field(5_000, ge=1, le=INT_MAX)
    """Milliseconds without a frame after which a heartbeat is sent."""
    ha_housekeeping_interval: int = Field(20_000, ge=1, le=INT_MAX)
    """Milliseconds without a report, or without accepting bytes, until a follower is dropped."""
    listen_port: int = Field(10_911, le=65_535)
    """Port for clients of the broker."""
    ha_listen_port: int = Field(0, le=65_535)
    """Port for slaves; 0 or less: the one after ``listen_port``."""
    ha_transfer_batch_size: int = Field(32_768, ge=1, le=MAX_BODY_BYTES - FRAME_HEAD.size)
    """Bytes of the log in one frame; a larger frame does not fit into a slave's buffer."""
    ha_flow_control_enable: bool = False
    """Whether ``max_ha_transfer_byte_in_second`` limits each connection."""
    max_ha_transfer_byte_in_second: int = Field(104_857_600, ge=1, le=LONG_MAX)
    """Maximum bytes per second and connection, including frame headers."""

    @property
    def port(self) -> int:
        """Return the port for slaves.

        Source: RocketMQ ``BrokerStartup.buildBrokerController`` (before 5.1.1 it was always
        ``listenPort`` plus 1).
        """
        return self.ha_listen_port if self.ha_listen_port > 0 else self.listen_port + 1
