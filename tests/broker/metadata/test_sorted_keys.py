"""Keys found by topic, compared with a scan of a set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.broker.metadata import sorted_keys
from cqstore.broker.metadata.sorted_keys import SortedKeys

TOPICS = ["t", "t@u", "tt", "", "é", "z"]
KEYS = st.builds("{}@{}".format, st.sampled_from(TOPICS), st.sampled_from(["g", "h@i", "ü"]))
STEPS = st.lists(
    st.tuples(st.just("add"), KEYS) | st.tuples(st.just("remove"), st.sets(KEYS, max_size=5)),
    max_size=20,
)


@pytest.mark.parametrize("few", [0, 2, 64])
def test_keys_of_topics_are_those_of_a_scan(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With each number of keys from which on they are sorted anew."""
    monkeypatch.setattr(sorted_keys, "_FEW", few)

    @given(st.sets(KEYS), STEPS, st.sets(st.sampled_from(TOPICS)))
    def compare(first: set[str], steps: list[tuple[str, str | set[str]]], topics: set[str]) -> None:
        keys, model = SortedKeys(first), set(first)
        for _, what in steps:
            if isinstance(what, set):
                keys.remove(what)
                model -= what
            elif what not in model:
                keys.add(what)
                model.add(what)
            found = keys.of_topics(topics)
            assert len(found) == len({*found})
            assert {*found} == {
                key for key in model if any(key.startswith(f"{topic}@") for topic in topics)
            }

    compare()
