"""Predefined queries for ``cqstore sql DIR --example NAME``."""

from typing import NamedTuple


class Example(NamedTuple):
    """Predefined SQL query of ``cqstore sql``."""

    name: str
    doc: str
    sql: str


EXAMPLES = (
    Example(
        "messages-per-hour",
        "Records and bytes of each topic per hour (UTC) of their store time. A record of an inner"
        " batch holds several messages.",
        """SELECT topic, date_trunc('HOUR', store_time) AS hour, count(*) AS records,
       sum(size) AS bytes
FROM commitlog GROUP BY topic, hour ORDER BY topic, hour""",
    ),
    Example(
        "dead-topics",
        "Topics without a message in the seven days before the newest message of the store.",
        """SELECT topic, max(store_time) AS last_message, count(*) AS records
FROM commitlog GROUP BY topic
HAVING last_message < (SELECT max(store_time) FROM commitlog) - INTERVAL 7 DAYS
ORDER BY last_message, topic""",
    ),
    Example(
        "queue-skew",
        "Skew of a topic's queues: messages of the largest queue divided by the average.",
        """SELECT topic, count(*) AS queues, sum(held) AS messages, max(held) AS largest,
       round(max(held) / avg(held), 2) AS skew
FROM (SELECT topic, queue_id, sum(batch_num) AS held FROM cq GROUP BY topic, queue_id)
GROUP BY topic ORDER BY skew DESC, messages DESC, topic""",
    ),
    Example(
        "size-histogram",
        "Records by size: each row covers sizes from a power of two up to the next.",
        """SELECT shiftleft(1L, length(bin(size)) - 1) AS from_bytes, count(*) AS records,
       sum(size) AS bytes
FROM cq GROUP BY from_bytes ORDER BY from_bytes""",
    ),
    Example(
        "largest-messages",
        "The twenty largest records and their positions.",
        """SELECT topic, queue_id, queue_offset, phy_offset, size
FROM cq ORDER BY size DESC, phy_offset LIMIT 20""",
    ),
    Example(
        "retries",
        "Topics with redelivered messages, and their highest number of redeliveries.",
        """SELECT topic, count(*) AS records, max(reconsume_times) AS most
FROM commitlog WHERE reconsume_times > 0 GROUP BY topic ORDER BY records DESC, topic""",
    ),
)


def example(name: str) -> Example | None:
    """Return the example of that name."""
    return next((one for one in EXAMPLES if one.name == name), None)
