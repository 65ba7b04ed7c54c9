"""Followers and masters through cuts, losses, partitions and kills, by seeds, in their own time."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest import mock

import pytest

from cqstore.replication.errors import DivergedError
from cqstore.replication.follow import log_receiver
from cqstore.replication.follow.log_receiver import LogReceiver
from cqstore.replication.follow.master_session import Session
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.parted import CONFIG, grow, log_in, parted
from tests.kit.sim_follow import Compared, Logs, Story

FEW = range(36, 42)
"""Among them masters that lose what their follower has."""
MANY = range(100, 500)
WITHOUT_PROOF = "acknowledged, the master has lost it"
RARE = {"requested_beyond", "refused_in_vain"}
"""What no seed need come to."""


Pair = tuple[Logs, Logs]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Logs that part into records of other sizes, and such whose records lie in the same places."""
    folder = tmp_path_factory.mktemp("logs")
    unlike, alike = parted(folder / "unlike", 45, 60, 140), parted(folder / "alike", 45, 0, 0)
    grow(alike[0], 60, word="first")
    grow(alike[1], 140, word="other")
    return described(*unlike), described(*alike)


def described(one: Path, other: Path, end: int) -> Logs:
    with MessageStore.open(one, CONFIG, read_only=True) as store:
        starts = [record.phy_offset for record in components_of(store).log.scan(0)]
    return Logs(CONFIG, log_in(one), log_in(other), end, starts, (one, other))


def run(seeds: range, logs: Pair, folder: Path) -> Compared:
    """Run masters and logs of both kinds by turns; fail with the seed of what does not hold."""
    found = Compared()
    for seed in seeds:
        story = Story(seed, logs[seed // 2 % 2], folder / str(seed), feeding=bool(seed % 2))
        story.folder.mkdir(parents=True)
        try:
            found.add(story.run())
        except BaseException as exc:
            exc.add_note(f"seed {seed}")
            raise
    return found


def test_a_few_seeds_end_with_one_log(logs: Pair, tmp_path: Path) -> None:
    found = run(FEW, logs, tmp_path)
    assert {name for name, count in vars(found).items() if not count} <= RARE, found
    assert found.log_bytes >= len(FEW) * min(len(logs[0].first), len(logs[1].first))
    assert found.seconds > 60 * len(FEW)


@pytest.mark.long
def test_many_seeds_end_with_one_log(logs: Pair, tmp_path: Path) -> None:
    found = run(MANY, logs, tmp_path)
    assert {name for name, count in vars(found).items() if not count} <= RARE, found
    assert min(found.refusals, found.rejoined) > len(MANY) // 20
    assert found.refused_in_vain <= len(MANY) // 20


def test_a_seed_runs_the_same_way_again(logs: Pair, tmp_path: Path) -> None:
    first, second = (run(range(2, 3), logs, tmp_path / name) for name in ("a", "b"))
    assert first == second


# ---- faults that are planted


@contextmanager
def acknowledges_before_it_appends() -> Iterator[None]:
    def reportable(session: Session) -> int:
        taken = session._receiver
        return max(taken.next_phy_offset, taken.request)

    with mock.patch.object(Session, "_reportable", reportable):
        yield


@contextmanager
def skips_the_proof_of_its_tail() -> Iterator[None]:
    with (
        mock.patch.object(log_receiver, "tail_begin", lambda log, _: log.max_phy_offset()),
        mock.patch.object(LogReceiver, "is_verified", property(lambda _: True)),
    ):
        yield


@contextmanager
def appends_what_differs() -> Iterator[None]:
    with mock.patch.object(LogReceiver, "_compare", return_value=None):
        yield


@contextmanager
def forgets_what_is_torn() -> Iterator[None]:
    """What waits for the end of its record is left out when more comes, but for the first record.

    Of that alone the rest would never be there: nothing else comes before it is.
    """
    plain = LogReceiver.receive

    def take(self: LogReceiver, pieces: object) -> None:
        if self._end:
            self._rest = self._rest[:-1]
        plain(self, pieces)  # type: ignore[arg-type]

    with mock.patch.object(LogReceiver, "receive", take):
        yield


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (acknowledges_before_it_appends, "acknowledged, the log here ends at"),
        (skips_the_proof_of_its_tail, WITHOUT_PROOF),
        (appends_what_differs, WITHOUT_PROOF),
        (forgets_what_is_torn, "cannot append the master's bytes"),
    ],
)
def test_a_planted_fault_is_found(
    logs: Pair, tmp_path: Path, fault: Callable[[], AbstractContextManager[None]], words: str
) -> None:
    """By a moment in which something does not hold; without it the same seeds end well."""
    with fault(), pytest.raises((AssertionError, DivergedError), match=words):
        run(FEW, logs, tmp_path)
