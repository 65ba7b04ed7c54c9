"""RecordCheck: check that a unit matches its decoded record."""

from cqstore.store.comparing.log_heads import LogHeads
from cqstore.store.comparing.queue_findings import QueueFindings
from cqstore.store.comparing.tally import DifferenceKind
from cqstore.store.errors import CorruptionError
from cqstore.store.record.decoder import check_record
from cqstore.store.record.message import LMQ_PREFIX, SCHEDULE_TOPIC, is_queued
from cqstore.store.record.properties import dispatch_properties
from cqstore.store.service.dispatching.delay import DelayLevels
from cqstore.store.service.dispatching.record_units import light_queues
from cqstore.store.settings.config import StoreConfig


class RecordCheck:
    """Check of units against decoded records; about ten microseconds per record."""

    def __init__(self, log: LogHeads, config: StoreConfig) -> None:
        self._log = log
        self._property_crc = config.force_verify_prop_crc
        self._delays = DelayLevels(config.message_delay_level)

    def problem(
        self, found: QueueFindings, queue_offset: int, phy_offset: int, size: int, tags_code: int
    ) -> DifferenceKind | None:
        """Return the difference of a unit whose record head is right, or ``None``."""
        data = self._log.record(phy_offset, size)
        try:
            record = check_record(data, phy_offset, check_crc=True, property_crc=self._property_crc)
            topic = record.topic
        except CorruptionError:
            return DifferenceKind.NO_RECORD
        if not is_queued(record.sys_flag):
            return DifferenceKind.OTHER_QUEUE
        queue = found.queue
        properties = dispatch_properties(record.properties_bytes)
        if topic != queue.topic:
            light = queue.topic.startswith(LMQ_PREFIX)
            places = light_queues(topic, properties) if light else []
            if (queue.topic, queue_offset) not in places:
                return DifferenceKind.OTHER_QUEUE
        elif record.queue_id != queue.queue_id:
            return DifferenceKind.OTHER_QUEUE
        expected = properties.tags_code
        if topic == SCHEDULE_TOPIC and properties.delay is not None:
            expected = self._delays.tags_code(properties.delay, record.store_timestamp, expected)
        return None if tags_code == expected else DifferenceKind.OTHER_TAGS
