"""What lasts is measured from when it was first seen."""

import pytest

from cqstore.replication.follow.stopwatch import Stopwatch


@pytest.mark.parametrize("what", [0, -1, 7])
def test_what_is_seen_for_the_first_time_has_just_begun(what: int) -> None:
    assert Stopwatch().seconds(what, 1000.0) == 0


def test_the_same_thing_lasts_and_another_one_begins_anew() -> None:
    lasting = Stopwatch()
    seen = [(5, 10.0), (5, 12.5), (5, 14.0), (6, 15.0), (6, 16.0), (5, 17.0), (5, 18.5)]
    assert [lasting.seconds(*each) for each in seen] == [0, 2.5, 4, 0, 1, 0, 1.5]
