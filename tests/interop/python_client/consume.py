"""Consumers of RocketMQ's Python client (``rocketmq`` 0.4.4, over librocketmq): a line a message.

Words: pull or push, PORT GROUP TOPIC COUNT. Ends when COUNT messages have come, or after a minute.
The client ends a body at its first NUL byte.
"""

import json
import sys
import threading

from rocketmq.client import (  # type: ignore[import-not-found]
    PullConsumer,
    PushConsumer,
    RecvMessage,
)

SECONDS = 60


def row(message: RecvMessage) -> str:
    return json.dumps({
        "topic": message.topic, "queueId": message.queue_id, "queueOffset": message.queue_offset,
        "phy": message.commit_log_offset, "storeSize": message.store_size,
        "bornTimestamp": message.born_timestamp, "storeTimestamp": message.store_timestamp,
        "reconsumeTimes": message.reconsume_times, "body": (message.body or b"").hex(),
        "tags": (message.tags or b"").decode(), "keys": (message.keys or b"").decode(),
    })  # fmt: skip


def pull(port: str, group: str, topic: str) -> None:
    consumer = PullConsumer(group)
    consumer.set_namesrv_addr(f"127.0.0.1:{port}")
    consumer.start()
    for message in consumer.pull(topic):
        sys.stdout.write(row(message) + "\n")
    consumer.shutdown()


def push(port: str, group: str, topic: str, count: int) -> None:
    consumer, seen, done = PushConsumer(group), set(), threading.Event()
    lock = threading.Lock()

    def on_message(message: RecvMessage) -> None:
        text = row(message)
        with lock:
            if text not in seen:
                seen.add(text)
                sys.stdout.write(text + "\n")
            if len(seen) == count:
                done.set()

    consumer.set_namesrv_addr(f"127.0.0.1:{port}")
    consumer.subscribe(topic, on_message)
    consumer.start()
    done.wait(SECONDS)
    consumer.shutdown()


def main() -> None:
    kind, port, group, topic, count = sys.argv[1:]
    if kind == "pull":
        pull(port, group, topic)
    else:
        push(port, group, topic, int(count))


main()
