"""The compiled connections of followers, beside a model in Python and under threads."""

import random
import resource
import signal
import socket
import struct
import threading
import time
from array import array
from collections.abc import Iterator
from errno import EBADF
from fcntl import ioctl
from functools import partial
from pathlib import Path
from termios import FIONREAD

import pytest

from cqstore.replication.feed._links import Link, Links
from tests.kit.given_memory import given_memory
from tests.kit.oracle.links import OracleLink, OracleLinks
from tests.kit.shim.memory import without_memory
from tests.kit.waiting import run_threads, running_threads, until

SECONDS = 60.0
REPORT = 8
ALONE = 16
"""Puts that have waited alone before they are lent the hearing."""


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
    requested = [(phy_offset, followers) for phy_offset in (30, 10, 20) for followers in (1, 2)]

    def wait(phy_offset: int, followers: int) -> None:
        assert links.wait(phy_offset, followers, soon(), ())
        answers.append((phy_offset, followers))

    def has_answers(count: int) -> bool:
        return len(answers) == count

    threads = [threading.Thread(target=wait, args=each) for each in requested]
    with running_threads(threads):
        until(lambda: links.waiting == len(requested))
        for number, phy_offset, served in (
            (1, 20, {(10, 1), (20, 1)}), (2, 30, {(30, 1)}),
            (0, 10, {(10, 2)}), (0, 40, {(20, 2), (30, 2)}),
        ):  # fmt: skip
            answers.clear()
            left = links.waiting - len(served)
            links.acknowledge(there[number], phy_offset)
            until(partial(has_answers, len(served)))
            assert (set(answers), links.waiting) == (served, left)


def test_threads_that_wait_a_moment_never_hang_and_never_answer_too_soon() -> None:
    """A waiter that is too late as it is called is not another one's call."""
    links, link, ended = Links(), Link("a", 1), threading.Event()
    links.join(link)
    links.begin(link, 0, 0)
    served, late, early = [0] * 4, [0] * 4, [0] * 4

    def wait(place: int) -> None:
        draw = random.Random(place)
        while not ended.is_set():
            at = link.position + draw.randrange(3)
            deadline = time.monotonic() + draw.random() * 2e-4
            if links.wait(at, 1, deadline, ()):
                served[place] += 1
                assert link.acknowledged >= at
            else:
                late[place] += 1
                early[place] += time.monotonic() < deadline

    threads = [threading.Thread(target=wait, args=(place,)) for place in range(4)]
    with running_threads(threads):
        while min(served) < 200 or min(late) < 5:
            links.acknowledge(link, link.position + 1)
        ended.set()
    assert links.waiting == 0
    assert early == [0] * 4


def test_an_answer_before_the_sleep_wakes_no_later_wait() -> None:
    links, link = Links(), Link("a", 1)
    links.join(link)
    links.begin(link, 0, 0)
    assert links.wait(1, 1, soon(), (lambda: links.acknowledge(link, 1),))
    deadline = time.monotonic() + 0.05
    assert not links.wait(2, 1, deadline, ())
    assert time.monotonic() >= deadline


def sleeps() -> int:
    """Return how often this thread has given up its processor."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def test_a_thread_that_waits_sleeps(received: "ReceivingLink") -> None:
    """It neither polls for the answer nor for the bytes, and uses no processor meanwhile."""
    before, used = sleeps(), time.thread_time()
    assert not received.links.wait(1, 1, time.monotonic() + 0.5, ())
    with pytest.raises(TimeoutError):
        received.left(0.5)
    assert sleeps() - before < 10  # it is three
    assert time.thread_time() - used < 0.02  # a busy machine gives a loop little more


def test_a_put_waits_for_followers_that_are_not_there() -> None:
    """None has come yet, or the only one has left."""
    links, link = Links(), Link("a", 1)
    for _ in range(2):
        deadline = time.monotonic() + 0.02
        assert not links.wait(1, 1, deadline, ())
        assert time.monotonic() >= deadline
        links.join(link)
        links.begin(link, 0, 0)
        links.leave(link)
    thread = threading.Thread(target=lambda: served.append(links.wait(1, 1, soon(), ())))
    served: list[bool] = []
    thread.start()
    until(lambda: links.waiting == 1)
    links.join(link)
    links.acknowledge(link, 1)
    thread.join()
    assert served == [True]


def test_memory_of_a_wait_is_used_again() -> None:
    links = Links()
    assert not links.wait(1, 1, 0, ())
    before = given_memory()
    for _ in range(2000):
        assert not links.wait(1, 1, 0, ())
    assert given_memory() - before < 2000 * 32  # a waiter has more


@pytest.mark.parametrize("links_before", [0, 8, 16])
def test_a_link_for_which_there_is_no_memory_is_not_there_and_the_others_are(
    links_before: int,
) -> None:
    """Links have room for eight, and then for twice as many."""
    links, last = Links(), Link("last", 1)
    there = [Link(f"{number}", 1) for number in range(links_before)]
    for number, link in enumerate(there):
        links.join(link)
        links.begin(link, 0, 0)
        links.acknowledge(link, number + 1)

    def is_as_before() -> None:
        assert links.links() == there
        reached = [links.reached(followers) for followers in range(1, links_before + 2)]
        assert reached == [*range(links_before, 0, -1), -1]
        assert links.in_sync(1, 2) == links_before

    assert without_memory("_links", lambda: links.join(last), is_as_before) == 2
    assert links.links() == [*there, last]
    links.begin(last, 0, 0)
    links.acknowledge(last, 100)
    assert links.reached(1) == 100
    links.leave(last)
    is_as_before()


def test_a_wait_for_which_there_is_no_memory_waits_for_nothing() -> None:
    """The memory of a waiter, and of the lock at which it sleeps, which Python allocates."""
    refused = 0
    for library in ("_links", ""):
        links, link = Links(), Link("a", 1)

        def works(links: Links = links) -> None:
            assert links.waiting == 0

        refused = without_memory(library, partial(links.wait, 1, 1, 0, ()), works)
        assert refused >= 1
        links.join(link)
        links.begin(link, 0, 0)
        assert links.wait(1, 1, soon(), (partial(links.acknowledge, link, 1),))
    assert refused >= 2


def test_who_is_told_of_a_wait_may_fail_and_no_put_waits_then() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    links, reported = Links(), list[int]()
    with pytest.raises(ZeroDivisionError):
        links.wait(1, 1, soon(), (lambda: reported.append(links.waiting), fail))
    assert (reported, links.waiting) == ([1], 0)


# ---- what is heard


class ReceivingLink:
    """A link that another thread hears, and the far end of its connection."""

    def __init__(self, sent: int, lease: float = 0.01) -> None:
        self.links, self.link = Links(lease), Link("a", 1)
        self.links.join(self.link)
        self.links.begin(self.link, 0, 0)
        self.link.sent = sent
        self.near, self.far = socket.socketpair()

    def left(self, patience: float = SECONDS) -> bytes:
        return self.links.receive(self.link, self.near.fileno(), patience)


@pytest.fixture
def received() -> Iterator[ReceivingLink]:
    received = ReceivingLink(1000)
    with received.near, received.far:
        yield received


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
    received: ReceivingLink, other: bytes
) -> None:
    received.far.send(reports(10, 10, 100))
    thread = threading.Thread(target=lambda: answers.append(received.left()))
    answers: list[bytes] = []
    thread.start()
    until(lambda: received.link.acknowledged == 100)
    received.far.send(other)
    thread.join()
    assert answers == [other]
    assert (received.link.position, received.link.acknowledged) == (100, 100)


@pytest.mark.parametrize("value", [-1, -2])
def test_no_report_lies_before_a_log_where_none_has_come(
    received: ReceivingLink, value: int
) -> None:
    link = Link("b", 2)
    received.links.join(link)  # it has asked for nothing yet
    link.sent = 1000
    received.far.send(reports(value))
    assert received.links.receive(link, received.near.fileno(), SECONDS) == reports(value)
    assert (link.position, link.acknowledged) == (-1, -1)


def test_what_is_heard_wakes_who_waits_for_it(received: ReceivingLink) -> None:
    def receive() -> None:
        assert received.left() == b""

    thread = threading.Thread(target=receive)
    thread.start()
    for phy_offset in range(1, 1001):
        send = partial(received.far.send, reports(phy_offset))
        assert received.links.wait(phy_offset, 1, soon(), (send,))
    received.far.close()
    thread.join()


def test_silence_and_ends_are_told(received: ReceivingLink) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        received.left(0.02)
    assert time.monotonic() >= began + 0.02
    received.far.close()
    assert received.left() == b""
    with pytest.raises(OSError, match="descriptor") as caught:
        received.links.receive(received.link, 1 << 20, SECONDS)
    assert caught.value.errno == EBADF


def test_bytes_that_another_reader_took_are_no_error(received: ReceivingLink) -> None:
    """A socket was readable, and no longer is: the next bytes are waited for."""
    answers, stolen = list[bytes](), list[bytes]()

    def steal() -> None:
        while data := received.near.recv(REPORT):
            stolen.append(data)

    def is_empty() -> bool:
        unread = array("i", [0])
        ioctl(received.near, FIONREAD, unread)
        return not unread[0]

    threads = [
        threading.Thread(target=each) for each in (lambda: answers.append(received.left()), steal)
    ]
    with running_threads(threads):
        for _ in range(100):
            received.far.send(reports(1))
            until(is_empty)
        received.far.close()
    assert answers == [b""]


def is_asleep(thread: threading.Thread) -> bool:
    """Return whether a thread waits in the system, see proc_pid_stat(5)."""
    text = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    return text.rpartition(")")[2].split()[0] == "S"


def test_a_signal_is_no_silence(received: ReceivingLink) -> None:
    """The system ends a wait for bytes when a handler has run in its thread."""
    answers, rang = list[bytes | TimeoutError](), list[int]()

    def receive() -> None:
        try:
            answers.append(received.left())
        except TimeoutError as exc:
            answers.append(exc)

    thread = threading.Thread(target=receive)
    before = signal.signal(signal.SIGUSR1, lambda number, _: rang.append(number))
    try:
        thread.start()
        for phy_offset in range(1, 21):
            until(partial(is_asleep, thread))
            signal.pthread_kill(thread.ident or 0, signal.SIGUSR1)
            until(lambda at=phy_offset: len(rang) == at)  # type: ignore[misc]
            received.far.send(reports(phy_offset))
            until(lambda at=phy_offset: bool(answers) or received.link.acknowledged == at)  # type: ignore[misc]
    finally:
        signal.signal(signal.SIGUSR1, before)
    received.far.close()
    thread.join()
    assert answers == [b""]


# ---- a put that hears its own answer


class Lent(ReceivingLink):
    """A link that its thread has lent: puts waited one by one until one of them heard it."""

    def __init__(self, patience: float = SECONDS, lease: float = SECONDS) -> None:
        super().__init__(0, lease)
        self.patience = patience
        self.answers: list[bytes | BaseException] = []
        self.thread = threading.Thread(target=self._receive)
        self.thread.start()
        while not self.link.received_by_puts:
            self.put()
        self.before = self.link.received_by_puts

    def _receive(self) -> None:
        try:
            self.answers.append(self.left(self.patience))
        except TimeoutError as exc:
            self.answers.append(exc)

    def put(self) -> None:
        """Send one byte, and wait until that is reported."""
        self.link.sent += 1
        send = partial(self.far.send, reports(self.link.sent))
        assert self.links.wait(self.link.sent, 1, soon(), (send,))

    def waiting(self) -> threading.Thread:
        """Return a thread that waits for the next byte."""
        self.link.sent += 1
        run = partial(self.links.wait, self.link.sent, 1, soon(), ())
        thread = threading.Thread(target=run)
        there = self.links.waiting + 1
        thread.start()
        until(lambda: self.links.waiting == there)
        return thread

    def two(self) -> None:
        """Have two threads wait, the first of which hears if the hearing is lent."""
        is_lent = self.link.received_by_puts == self.before
        threads = [self.waiting()]
        if is_lent:
            until(lambda: self.link.is_received_by_put)
        threads.append(self.waiting())
        for at in (self.link.sent - 1, self.link.sent):
            self.far.send(reports(at))
            threads.pop(0).join()

    def end(self) -> None:
        """Shut down what its thread hears."""
        self.near.shutdown(socket.SHUT_RDWR)
        # Where the hearing is lent, a put hears that.
        self.links.wait(1 << 40, 1, time.monotonic() + 0.02, ())
        self.thread.join()


@pytest.fixture
def lent() -> Iterator[Lent]:
    lent = Lent()
    with lent.near, lent.far:
        yield lent
        lent.end()


def test_puts_that_wait_one_by_one_hear_themselves(lent: Lent) -> None:
    for _ in range(100):
        lent.put()
    assert lent.link.received_by_puts == lent.before + 100


def test_who_waits_beside_another_has_the_thread_hear(lent: Lent) -> None:
    lent.two()
    for _ in range(ALONE - 1):
        lent.put()
    assert lent.link.received_by_puts == lent.before + 1

    def hears() -> bool:
        lent.put()
        return lent.link.received_by_puts > lent.before + 1

    until(hears)


def test_puts_that_do_not_wait_alone_do_not_hear(lent: Lent) -> None:
    for _ in range(2 * ALONE):
        lent.two()
        lent.put()
    assert lent.link.received_by_puts == lent.before + 1


def test_a_thread_that_has_lent_takes_it_back_when_no_put_comes() -> None:
    lent = Lent(lease=0.001)
    with lent.near, lent.far:
        lent.far.send(b"\0")
        lent.thread.join()
        assert lent.answers == [b"\0"]


@pytest.mark.parametrize("lease", [SECONDS, 0.01, 4e-5, 1e-5])
def test_many_that_wait_are_all_served_whoever_hears(lease: float) -> None:
    """Threads come and go while the far end reports what was sent, as much as came by then.

    After a short lease who has lent looks again just as puts take it, or give it back.
    """
    lent = Lent(lease=lease)
    with lent.near, lent.far:
        _all_are_served(lent)
        lent.end()


def _all_are_served(lent: Lent) -> None:
    sending, draw = threading.Lock(), random.Random(3)

    def answer() -> None:
        while data := lent.far.recv(4096):
            assert len(data) % 8 == 0
            lent.far.send(data[-8:])

    def run(puts: int) -> None:
        for _ in range(puts):
            with sending:
                lent.link.sent = at = lent.link.sent + 1
                lent.near.send(reports(at))
            assert lent.links.wait(at, 1, soon(), ())
            assert lent.link.acknowledged >= at

    far = threading.Thread(target=answer)
    far.start()
    for _ in range(30):
        counts = [draw.choice((1, 20, 60)) for _ in range(draw.choice((1, 1, 2, 5)))]
        threads = [threading.Thread(target=run, args=(count,)) for count in counts]
        run_threads(threads)
    assert lent.links.waiting == 0
    assert lent.link.received_by_puts > lent.before
    lent.near.shutdown(socket.SHUT_WR)
    far.join()


@pytest.mark.parametrize("other", [b"\0", reports(1 << 62), reports(0), b""])
def test_what_a_put_hears_and_cannot_take_is_left_to_the_thread(lent: Lent, other: bytes) -> None:
    thread = lent.waiting()
    until(lambda: lent.link.is_received_by_put)
    if other:
        lent.far.send(other)
    else:
        lent.far.shutdown(socket.SHUT_WR)
    lent.thread.join()
    assert (lent.answers, lent.links.waiting) == ([other], 1)  # nothing of it is noted
    lent.links.acknowledge(lent.link, lent.link.sent)
    thread.join()


def test_silence_is_told_while_a_put_hears() -> None:
    patience = 0.5  # longer than a put takes on a busy machine
    lent = Lent(patience, lease=0.01)
    with lent.near, lent.far:
        over = time.monotonic() + patience
        while time.monotonic() <= over:
            lent.put()
        assert not lent.links.wait(1 << 40, 1, time.monotonic() + 0.02, ())
        lent.put()  # it is silent from the last one on, not from the first
        thread = lent.waiting()
        lent.thread.join()
        assert [type(answer) for answer in lent.answers] == [TimeoutError]
        lent.links.acknowledge(lent.link, lent.link.sent)
        thread.join()


def test_a_put_that_hears_is_late_at_its_deadline(lent: Lent) -> None:
    """It need not hear as long as the hearing is lent."""
    began = time.monotonic()
    assert not lent.links.wait(1 << 40, 1, began + 0.05, ())
    assert began + 0.05 <= time.monotonic() < began + SECONDS / 4
    assert lent.link.received_by_puts == lent.before + 1


def test_a_second_connection_ends_that_puts_hear(lent: Lent) -> None:
    """A put that heard one of two would not hear the other."""
    second = Link("b", 2)
    lent.waiting()
    until(lambda: lent.link.is_received_by_put)
    lent.links.join(second)
    lent.links.begin(second, 0, 0)
    lent.far.send(reports(lent.link.sent))
    until(lambda: lent.links.waiting == 0)
    received = lent.link.received_by_puts
    for _ in range(40):
        lent.put()
        lent.links.acknowledge(second, lent.link.sent)
        assert lent.links.wait(lent.link.sent, 2, soon(), ())
    assert lent.link.received_by_puts <= received + 1  # the one that heard as the second came


def test_a_put_does_not_hear_a_connection_that_has_left(lent: Lent) -> None:
    lent.links.leave(lent.link)
    lent.far.send(reports(1 << 62))
    assert not lent.links.wait(1 << 40, 1, time.monotonic() + 0.05, ())
    assert lent.link.received_by_puts == lent.before
    assert lent.links.waiting == 0
    lent.links.join(lent.link)  # its thread ends when a put has heard the end


def test_a_handler_that_raises_leaves_the_hearing_to_others(lent: Lent) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    def strike() -> None:
        until(lambda: lent.link.is_received_by_put)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, fail)
    try:
        thread = threading.Thread(target=strike)
        thread.start()
        began = time.monotonic()
        with pytest.raises(ZeroDivisionError):
            lent.links.wait(1 << 40, 1, soon(), ())
        assert time.monotonic() < began + SECONDS / 4  # it does not hear on
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert lent.links.waiting == 0
    received = lent.link.received_by_puts
    while lent.link.received_by_puts < received + 20:
        lent.put()
