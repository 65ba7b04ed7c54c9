"""Verdict: whether two answers are the same, and if not, whether time explains the difference.

The other backend is read later than the reference, and receives its units slightly later too. So a
read with different answers is repeated on both at a moment without writes. This excuses only what
time explains: not an answer that differs although nothing has changed in between, and not a value
that the other backend never had.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from cqstore.ab.mirror.mirrored_reads import Answer, FailedAnswer, MirroredRead, PullAnswer
from cqstore.ab.mirror.moments import Moment, Moments
from cqstore.ab.trace.operation_lines import StoreOp

_TRIES = 100
_PAUSE_SECONDS = 0.002


class ReadOutcome(StrEnum):
    """Outcome of a mirrored read."""

    SAME = "same"
    EXPLAINED = "explained"
    """The answers differed because of the time between them; repeated at one moment they agree."""
    DIFFERENT = "different"
    UNSETTLED = "unsettled"
    """The answers differed, and no moment without a write was found to repeat both reads."""
    GONE = "gone"
    """The other backend was detached before the read was repeated."""


class Verdict(NamedTuple):
    """The outcome of a mirrored read, with both answers if they differ."""

    outcome: ReadOutcome
    answers: tuple[Answer, Answer] | None = None
    """The answers of the reference and of the other backend."""


def judge(
    read: MirroredRead,
    later: Answer,
    after: Moment,
    moments: Moments,
    pause: Callable[[float], object],
) -> Verdict:
    """Compare the reference's answer with the other backend's, given ``later``, before ``after``.

    ``pause`` waits some seconds between two attempts to find a moment without a write.
    """
    first = read.answer
    if later == first:
        return Verdict(ReadOutcome.SAME)
    if after.is_still and after == read.moment:
        return Verdict(ReadOutcome.DIFFERENT, (first, later))
    for _ in range(_TRIES):
        before = moments.now()
        if before.is_still:
            (reference, _), (other, _) = map(read.read_from, read.sides)
            if moments.now() == before:
                break
        pause(_PAUSE_SECONDS)
    else:
        return Verdict(ReadOutcome.UNSETTLED)
    if reference != other:
        return Verdict(ReadOutcome.DIFFERENT, (reference, other))
    if read.moment.losses == before.losses and (
        _never_was(read.op, later, first, reference) or _never_was(read.op, first, first, reference)
    ):
        return Verdict(ReadOutcome.DIFFERENT, (first, later))
    return Verdict(ReadOutcome.EXPLAINED)


def _never_was(op: StoreOp, answer: Answer, first: Answer, now: Answer) -> bool:
    """Return whether ``answer`` was never right between two answers of the reference.

    Units are added and expire, but the unit at an offset never changes, and the max offset never
    decreases. A missing unit is not a difference: it may have been added since.
    """
    if isinstance(answer, FailedAnswer):
        return True
    if isinstance(answer, PullAnswer):
        if not isinstance(now, PullAnswer):
            return True
        if answer.high > max(now.high, first.high if isinstance(first, PullAnswer) else 0):
            return True
        return any(
            (right := now.at(offset)) is not None and right != row and offset >= now.low
            for offset, row in enumerate(answer.rows, answer.first)
        )
    if op is StoreOp.ESTIMATE:  # it extrapolates: by other units when some have gone
        return False
    known = [each for each in (first, now) if isinstance(each, int)]
    return answer > max(known, default=0)
