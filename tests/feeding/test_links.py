"""The compiled connections of followers, beside a model in Python and under threads."""

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from errno import EBADF
from functools import partial

import pytest

from replication.feeding._links import Link, Links
from tests.kit.oracle.links import OracleLink, OracleLinks
from tests.kit.waiting import until

SECONDS = 60.0


def soon() -> float:
    return time.monotonic() + SECONDS


@pytest.mark.parametrize("seed", range(20))
def test_it_knows_what_the_model_knows(seed: int) -> None:
    draw, links, model = random.Random(seed), Links(), OracleLinks()
    pairs: list[tuple[Link, OracleLink]] = []
    for _ in range(400):
        step = draw.random()
        if step < 0.15 or not pairs:
            address = draw.choice("abcdefghijkl")
            pairs.append((Link(address, 1), model.join(address)))
            links.join(pairs[-1][0])
        elif step < 0.25:
            mine, other = pairs.pop(draw.randrange(len(pairs)))
            links.leave(mine)
            links.leave(mine)  # once more: nothing
            model.links.remove(other)
        else:
            mine, other = draw.choice(pairs)
            at = draw.randrange(50)
            if step < 0.4:
                start = draw.randrange(50)
                links.begin(mine, at, start)
                model.begin(other, at, start)
            else:
                links.acknowledge(mine, at)
                model.acknowledge(other, at)
            assert (mine.position, mine.start, mine.sent, mine.acknowledged) == (
                other.position, other.start, other.sent, other.acknowledged,
            )  # fmt: skip
        assert [link.address for link in links.links()] == [each.address for each in model.links]
        for followers in (1, 2, 3, 5, 13):
            reached = model.reached(followers)
            assert links.reached(followers) == reached
            assert links.wait(max(reached, 0), followers, 0, ()) == (reached >= 0)
            assert not links.wait(reached + 1, followers, 0, ()) or reached < 0
        for phy_offset, gap in ((10, 5), (30, 31), (0, 1)):
            assert links.in_sync(phy_offset, gap) == model.in_sync(phy_offset, gap)
        assert links.waiting == 0


def test_a_wait_is_over_when_so_many_have_it_and_not_before() -> None:
    links, answers = Links(), list[tuple[int, int]]()
    there = [Link(address, 1) for address in "abb"]
    for link in there:
        links.join(link)
        links.begin(link, 0, 0)
    asked = [(phy_offset, followers) for phy_offset in (30, 10, 20) for followers in (1, 2)]

    def wait(phy_offset: int, followers: int) -> None:
        assert links.wait(phy_offset, followers, soon(), ())
        answers.append((phy_offset, followers))

    def has_answers(count: int) -> bool:
        return len(answers) == count

    threads = [threading.Thread(target=wait, args=each) for each in asked]
    for thread in threads:
        thread.start()
    until(lambda: links.waiting == len(asked))
    for number, phy_offset, served in (
        (1, 20, {(10, 1), (20, 1)}), (2, 30, {(30, 1)}),
        (0, 10, {(10, 2)}), (0, 40, {(20, 2), (30, 2)}),
    ):  # fmt: skip
        answers.clear()
        left = links.waiting - len(served)
        links.acknowledge(there[number], phy_offset)
        until(partial(has_answers, len(served)))
        assert (set(answers), links.waiting) == (served, left)
    for thread in threads:
        thread.join()


def test_threads_that_wait_a_moment_never_hang_and_never_answer_too_soon() -> None:
    """A waiter that is too late as it is called is not another one's call."""
    links, link, ended = Links(), Link("a", 1), threading.Event()
    links.join(link)
    links.begin(link, 0, 0)
    served, late = [0] * 4, [0] * 4

    def wait(place: int) -> None:
        draw = random.Random(place)
        while not ended.is_set():
            at = link.position + draw.randrange(3)
            if links.wait(at, 1, time.monotonic() + draw.random() * 2e-4, ()):
                served[place] += 1
                assert link.acknowledged >= at
            else:
                late[place] += 1

    threads = [threading.Thread(target=wait, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    while min(served) < 200 or min(late) < 5:
        links.acknowledge(link, link.position + 1)
    ended.set()
    for thread in threads:
        thread.join()
    assert links.waiting == 0


def test_who_is_told_of_a_wait_may_fail_and_no_put_waits_then() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    links, told = Links(), list[int]()
    with pytest.raises(ZeroDivisionError):
        links.wait(1, 1, soon(), (lambda: told.append(links.waiting), fail))
    assert (told, links.waiting) == ([1], 0)


# ---- what is heard


class Heard:
    """A link that another thread hears, and the far end of its connection."""

    def __init__(self, sent: int) -> None:
        self.links, self.link = Links(), Link("a", 1)
        self.links.join(self.link)
        self.links.begin(self.link, 0, 0)
        self.link.sent = sent
        self.near, self.far = socket.socketpair()

    def left(self, patience: float = SECONDS) -> bytes:
        return self.links.hear(self.link, self.near.fileno(), patience)


@pytest.fixture
def heard() -> Iterator[Heard]:
    heard = Heard(1000)
    with heard.near, heard.far:
        yield heard


def reports(*phy_offsets: int) -> bytes:
    return struct.pack(f">{len(phy_offsets)}q", *phy_offsets)


@pytest.mark.parametrize(
    "other",
    [
        reports(5), reports(-1), reports(1001), reports(200, 1001), reports(200, 100), b"\0",
        reports(1 << 62), reports(200)[:7], reports(200, 300)[:15], reports(-(1 << 63)),
    ],
)  # fmt: skip
def test_what_is_no_whole_report_of_what_was_sent_is_left_to_the_caller(
    heard: Heard, other: bytes
) -> None:
    heard.far.send(reports(10, 10, 100))
    thread = threading.Thread(target=lambda: answers.append(heard.left()))
    answers: list[bytes] = []
    thread.start()
    until(lambda: heard.link.acknowledged == 100)
    heard.far.send(other)
    thread.join()
    assert answers == [other]
    assert (heard.link.position, heard.link.acknowledged) == (100, 100)


@pytest.mark.parametrize("value", [-1, -2])
def test_no_report_lies_before_a_log_where_none_has_come(heard: Heard, value: int) -> None:
    link = Link("b", 2)
    heard.links.join(link)  # it has asked for nothing yet
    link.sent = 1000
    heard.far.send(reports(value))
    assert heard.links.hear(link, heard.near.fileno(), SECONDS) == reports(value)
    assert (link.position, link.acknowledged) == (-1, -1)


def test_what_is_heard_wakes_who_waits_for_it(heard: Heard) -> None:
    def hear() -> None:
        assert heard.left() == b""

    thread = threading.Thread(target=hear)
    thread.start()
    for phy_offset in range(1, 1001):
        send = partial(heard.far.send, reports(phy_offset))
        assert heard.links.wait(phy_offset, 1, soon(), (send,))
    heard.far.close()
    thread.join()


def test_silence_and_ends_are_told(heard: Heard) -> None:
    with pytest.raises(TimeoutError):
        heard.left(0.001)
    heard.far.close()
    assert heard.left() == b""
    with pytest.raises(OSError, match="descriptor") as caught:
        heard.links.hear(heard.link, 1 << 20, SECONDS)
    assert caught.value.errno == EBADF
