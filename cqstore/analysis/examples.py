"""Questions that operators ask, ready made: for ``cqstore sql DIR --example NAME``."""

from typing import NamedTuple


class Example(NamedTuple):
    """A question in SQL that ``cqstore sql`` has by name."""

    name: str
    doc: str
    sql: str


EXAMPLES = (
    Example(
        "messages-per-hour",
        "Records and bytes of each topic, by the hour (UTC) in which the log took them: a record of"
        " an inner batch holds several messages.",
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
        "How unevenly a topic's messages lie over its queues: the largest over the average.",
        """SELECT topic, count(*) AS queues, sum(held) AS messages, max(held) AS largest,
       round(max(held) / avg(held), 2) AS skew
FROM (SELECT topic, queue_id, sum(batch_num) AS held FROM cq GROUP BY topic, queue_id)
GROUP BY topic ORDER BY skew DESC, messages DESC, topic""",
    ),
    Example(
        "size-histogram",
        "Records by size: each row those from a power of two up to the next.",
        """SELECT shiftleft(1L, length(bin(size)) - 1) AS from_bytes, count(*) AS records,
       sum(size) AS bytes
FROM cq GROUP BY from_bytes ORDER BY from_bytes""",
    ),
    Example(
        "largest-messages",
        "The twenty largest records, and where they lie.",
        """SELECT topic, queue_id, queue_offset, phy_offset, size
FROM cq ORDER BY size DESC, phy_offset LIMIT 20""",
    ),
    Example(
        "retries",
        "Topics whose messages were consumed again, with how often at most.",
        """SELECT topic, count(*) AS records, max(reconsume_times) AS most
FROM commitlog WHERE reconsume_times > 0 GROUP BY topic ORDER BY records DESC, topic""",
    ),
)


def example(name: str) -> Example | None:
    """Return the example of that name."""
    return next((one for one in EXAMPLES if one.name == name), None)
