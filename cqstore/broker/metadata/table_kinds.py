"""Types of the fields in a broker's JSON files and rows, see ``fastjson_kinds``.

Source: RocketMQ 5.5.1 ``TopicConfig``, ``SubscriptionGroupConfig``,
``TopicConfigSerializeWrapper``, ``SubscriptionGroupManager``, ``ConsumerOffsetManager``,
``LmqConsumerOffsetManager``, ``RocksDBOffsetSerializeWrapper``.
"""

from cqstore.store.broker_files.fastjson_kinds import (
    BOXED_INT,
    BOXED_LONG,
    DELAYS,
    FLAG,
    INT,
    LONG,
    OFFSETS_OF_QUEUES,
    TEXT,
    VERSION,
    Listed,
    Record,
    Table,
    enum_of,
)
from cqstore.store.broker_files.file_names import (
    DELAYS_FILE,
    GROUPS_FILE,
    LMQ_OFFSETS_FILE,
    OFFSETS_FILE,
    TOPICS_FILE,
)

_ATTRIBUTES = Table(TEXT, takes_null=True)
_OFFSETS = Table(OFFSETS_OF_QUEUES)
PULL_OFFSETS = "pullOffsetTable"
"""Field that only RocketMQ 5.5.0 writes to the offset files; no release reads it again."""
_TOPICS_OF_GROUPS = Table(Listed(TEXT), takes_null=True)
BITS = Table(BOXED_INT)
"""Topic → bits of the permissions denied to one group."""
TOPIC = Record({
    "topicName": TEXT, "readQueueNums": INT, "writeQueueNums": INT, "perm": INT,
    "topicFilterType": enum_of("SINGLE_TAG", "MULTI_TAG"), "topicSysFlag": INT,
    "order": FLAG, "attributes": _ATTRIBUTES,
})  # fmt: skip
_RETRY_POLICY = Record({
    "type": enum_of("EXPONENTIAL", "CUSTOMIZED"),
    "exponentialRetryPolicy": Record({"initial": LONG, "max": LONG, "multiplier": LONG}),
    "customizedRetryPolicy": Record({"next": Listed(LONG)}),
})  # fmt: skip
_SUBSCRIPTION = Record({
    "topic": TEXT, "expressionType": TEXT, "expression": TEXT, "version": LONG,
})  # fmt: skip
GROUP = Record({
    "groupName": TEXT, "consumeEnable": FLAG, "consumeFromMinEnable": FLAG,
    "consumeBroadcastEnable": FLAG, "consumeMessageOrderly": FLAG, "retryQueueNums": INT,
    "retryMaxTimes": INT, "groupRetryPolicy": _RETRY_POLICY, "brokerId": LONG,
    "whichBrokerWhenConsumeSlowly": LONG, "notifyConsumerIdsChangedEnable": FLAG,
    "groupSysFlag": INT, "consumeTimeoutMinute": INT,
    "subscriptionDataSet": Listed(_SUBSCRIPTION), "attributes": _ATTRIBUTES,
})  # fmt: skip
OFFSET_ROW = Record({"offsetTable": OFFSETS_OF_QUEUES})
FILE_KINDS = {
    TOPICS_FILE: Record({"topicConfigTable": Table(TOPIC), "dataVersion": VERSION}),
    GROUPS_FILE: Record({
        "subscriptionGroupTable": Table(GROUP), "forbiddenTable": Table(BITS),
        "dataVersion": VERSION,
    }),
    OFFSETS_FILE: Record({
        "offsetTable": _OFFSETS, "groupTopicMap": _TOPICS_OF_GROUPS, "dataVersion": VERSION,
        PULL_OFFSETS: _OFFSETS,
    }),
    LMQ_OFFSETS_FILE: Record({
        "offsetTable": _OFFSETS, "lmqOffsetTable": Table(BOXED_LONG),
        "groupTopicMap": _TOPICS_OF_GROUPS, "dataVersion": VERSION, PULL_OFFSETS: _OFFSETS,
    }),
    DELAYS_FILE: DELAYS,
}  # fmt: skip
"""File → its fields; a broker skips all other fields."""
