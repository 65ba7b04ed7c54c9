"""HaSettings: RocketMQ's settings for replication, with its defaults."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from cqstore.store.errors import StoreConfigError
from cqstore.store.java_numbers import INT_MAX
from cqstore.store.settings.broker_conf import BrokerConf
from cqstore.store.settings.validation import faults


class HaSettings(BaseModel):
    """Times of a connection in ms, and where replication begins; frozen.

    Fields are given by name or by RocketMQ's key.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    ha_send_heartbeat_interval: int = Field(5_000, ge=1, le=INT_MAX)
    """Interval at which a slave without news repeats its last report."""
    ha_housekeeping_interval: int = Field(20_000, ge=1, le=INT_MAX)
    """Time without a received byte after which a connection is closed."""

    sync_from_last_file: bool = False
    """Under a controller: an empty follower begins with the master's last file, not its first."""

    @classmethod
    def read(cls, path: Path | None) -> Self:
        """Return the settings in a ``broker.conf``; without ``path``, the defaults.

        Raises:
            StoreIOError: the file cannot be read.
            StoreConfigError: a value is invalid, or connections would end before a heartbeat.
        """
        keys = [to_camel(name) for name in cls.model_fields]
        given = BrokerConf.read(path).taken(keys) if path is not None else {}
        try:
            settings = cls.model_validate(given)
        except ValidationError as exc:
            raise StoreConfigError(f"invalid setting: {'; '.join(faults(exc))}", path=path) from exc
        heartbeat = settings.ha_send_heartbeat_interval
        patience = settings.ha_housekeeping_interval
        if patience <= heartbeat:
            raise StoreConfigError(
                f"haHousekeepingInterval={patience} must be greater than haSendHeartbeatInterval="
                f"{heartbeat}: otherwise an idle connection is closed before the next heartbeat."
                " Set both to the master's values",
                path=path,
            )
        return settings
