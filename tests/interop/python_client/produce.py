"""Producer of RocketMQ's Python client (``rocketmq`` 0.4.4, over librocketmq): a line a result.

Words: KIND PORT TOPIC COUNT. Kinds: sync, async, batch, delay, orderly; oneway without results.
"""

import json
import sys
import threading

from rocketmq.client import Message, Producer, SendResult  # type: ignore[import-not-found]

LEVEL = 1
SECONDS = 60


def tell(result: SendResult) -> None:
    row = {"status": int(result.status), "msgId": result.msg_id, "queueOffset": result.offset}
    sys.stdout.write(json.dumps(row) + "\n")


def message(topic: str, kind: str, number: int) -> Message:
    made = Message(topic)
    made.set_keys(f"k{number}")
    made.set_tags("red")
    made.set_property("number", str(number))
    made.set_body(f"{kind} {number} é")
    if kind == "delay":
        made.set_delay_time_level(LEVEL)
    return made


def send_async(producer: Producer, made: Message) -> None:
    done, faults = threading.Event(), []

    def on_result(result: SendResult) -> None:
        tell(result)
        done.set()

    def on_fault(fault: Exception) -> None:
        faults.append(fault)
        done.set()

    producer.send_async(made, on_result, on_fault)
    if not done.wait(SECONDS) or faults:
        raise SystemExit(f"not sent: {faults}")


def main() -> None:
    kind, port, topic, count = sys.argv[1:]
    producer = Producer("python")
    producer.set_namesrv_addr(f"127.0.0.1:{port}")
    producer.start()
    made = [message(topic, kind, number) for number in range(int(count))]
    if kind == "batch":
        tell(producer.send_batch(made))
    for number, each in enumerate(made if kind != "batch" else ()):
        if kind == "oneway":
            producer.send_oneway(each)
        elif kind == "async":
            send_async(producer, each)
        elif kind == "orderly":
            tell(producer.send_orderly(each, number))
        else:
            tell(producer.send_sync(each))
    producer.shutdown()


main()
