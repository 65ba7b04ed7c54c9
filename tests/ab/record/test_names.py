"""Names that a trace may show to anybody."""

from cqstore.ab.record.names import AnonymousNames, Names


def test_names_stay_unless_they_are_to_be_replaced() -> None:
    assert Names().topic("orders") == "orders"
    assert (Names().tag("paid"), Names().tag(None)) == ("paid", None)


def test_equal_names_stay_equal_and_kinds_of_topics_stay() -> None:
    names = AnonymousNames()
    topics = ["orders", "%RETRY%billing", "%DLQ%billing", "%LMQ%device/5", "half \ud800"]
    shown = [names.topic(topic) for topic in topics]
    assert shown == [names.topic(topic) for topic in topics]
    assert len(set(shown)) == len(topics)
    assert [text.rpartition("%")[0] for text in shown] == ["", "%RETRY", "%DLQ", "%LMQ", ""]
    assert shown[1].removeprefix("%RETRY%") == shown[2].removeprefix("%DLQ%")
    assert not any(word in " ".join(shown) for word in ("orders", "billing", "device"))
    assert names.topic("SCHEDULE_TOPIC_XXXX") == "SCHEDULE_TOPIC_XXXX"
    assert names.tag("orders") not in {names.topic("orders"), "orders"}
    assert names.tag(None) is None


def test_a_name_cannot_be_found_by_trying_names() -> None:
    one, other = AnonymousNames(), AnonymousNames()
    assert one.topic("orders") != other.topic("orders")
    assert AnonymousNames(b"k").topic("orders") == AnonymousNames(b"k").topic("orders")
