"""``Message``, compiled, beside its reference: what is made of it, compared, shown and copied."""

import copy
import dataclasses
import gc
import pickle
import weakref
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.store.record.message import LOOPBACK, Host, Message


@dataclass(slots=True)
class Reference:
    """The message as a dataclass of Python."""

    topic: str
    body: bytes
    queue_id: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Host = LOOPBACK
    store_host: Host = LOOPBACK
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


NAMES = Reference.__match_args__
values = st.one_of(
    st.integers(), st.text(max_size=3), st.binary(max_size=3), st.none(), st.just(Ellipsis),
    st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2),
    st.builds(Host, st.binary(min_size=8, max_size=8)),
)  # fmt: skip
by_place = st.lists(values, min_size=2, max_size=len(NAMES))


def fields(message: Any) -> list[object]:
    return [getattr(message, name) for name in NAMES]


@given(by_place)
def test_it_has_the_fields_of_its_reference(given_values: list[Any]) -> None:
    made, reference = Message(*given_values), Reference(*given_values)
    assert fields(made) == fields(reference)
    assert repr(made).replace("Message(", "Reference(", 1) == repr(reference)


@given(st.dictionaries(st.sampled_from(NAMES), values))
def test_it_takes_names_as_its_reference_does(named: dict[str, Any]) -> None:
    named = {"topic": "t", "body": b"", **named}
    assert fields(Message(**named)) == fields(Reference(**named))


@pytest.mark.parametrize("name", NAMES)
def test_each_field_can_be_set_and_counts(name: str) -> None:
    one, other = Message("t", b"x"), Message("t", b"x")
    assert one == other
    value = object()
    setattr(other, name, value)
    assert getattr(other, name) is value
    assert one != other
    setattr(one, name, value)
    assert one == other


def test_each_has_properties_of_its_own_and_the_usual_hosts() -> None:
    one, other = Message("t", b""), Message("t", b"")
    one.properties["a"] = "b"
    assert other.properties == {}
    assert one.born_host is other.store_host is LOOPBACK


@pytest.mark.parametrize("given_values", [(), ("t",), ("t", b"", *[0] * 10)])
def test_too_few_and_too_many_fields_are_refused(given_values: tuple[Any, ...]) -> None:
    for kind in (Message, Reference):
        with pytest.raises(TypeError, match=r"__init__\(\) takes|topic|body"):
            kind(*given_values)
    with pytest.raises(TypeError, match="tag"):
        Message("t", b"", tag="a")  # type: ignore[call-arg]


def test_it_is_no_key_and_equals_nothing_else() -> None:
    message = Message("t", b"")
    with pytest.raises(TypeError, match="unhashable"):
        hash(message)
    others: list[object] = [Reference("t", b""), object()]
    assert message not in others
    with pytest.raises(AttributeError):
        message.tags = "a"  # type: ignore[attr-defined]


def test_it_is_matched_copied_and_sent_to_other_processes() -> None:
    message = Message("t", b"x", 3, {"a": "b"}, born_timestamp=5)
    match message:
        case Message("t", body, queue_id):
            assert (body, queue_id) == (b"x", 3)
        case _:
            pytest.fail("no match")
    assert pickle.loads(pickle.dumps(message)) == message
    shallow, deep = copy.copy(message), copy.deepcopy(message)
    assert shallow == deep == message
    assert shallow.properties is message.properties
    assert deep.properties is not message.properties


def test_it_is_a_dataclass_as_its_reference_is() -> None:
    message = Message("t", b"x", 3, {"a": "b"})
    assert [each.name for each in dataclasses.fields(message)] == list(NAMES)
    changed = dataclasses.replace(message, body=b"y")
    assert type(changed) is Message
    assert changed == Message("t", b"y", 3, {"a": "b"})
    assert dataclasses.asdict(message) == dataclasses.asdict(Reference("t", b"x", 3, {"a": "b"}))
    assert dataclasses.astuple(message)[:3] == ("t", b"x", 3)


def test_one_that_leads_to_itself_is_collected() -> None:
    class Kept(dict[str, Any]):
        pass

    properties = Kept()
    gone = weakref.ref(properties)
    properties["itself"] = Message("t", b"", 0, properties)
    del properties
    gc.collect()
    assert gone() is None
