"""Verdict: are two answers the same, and if not, does time explain it?

The other backend is asked later than the reference was, and gets its units a moment later too. So
what differs is read again from both, at a moment without writes. That forgives what time
explains and nothing else: neither an answer that differs though nothing has changed in between, nor
a value that the other one never had.
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
    """What became of a mirrored read."""

    SAME = "same"
    EXPLAINED = "explained"
    """It differed since one of them was asked later; asked in one moment they are the same."""
    DIFFERENT = "different"
    UNSETTLED = "unsettled"
    """It differed, and there was no moment without a write to ask both again."""
    GONE = "gone"
    """The other backend was detached before it could be asked."""


class Verdict(NamedTuple):
    """The outcome, and of those that differ what both said."""

    outcome: ReadOutcome
    answers: tuple[Answer, Answer] | None = None
    """The reference's, the other one's."""


def judge(
    read: MirroredRead,
    later: Answer,
    after: Moment,
    moments: Moments,
    pause: Callable[[float], object],
) -> Verdict:
    """Compare the reference's answer with what the other one said ``later``, before ``after``.

    ``pause`` waits seconds between two tries to find a moment without a write.
    """
    first = read.answer
    if later == first:
        return Verdict(ReadOutcome.SAME)
    if after.is_still and after == read.moment:
        return Verdict(ReadOutcome.DIFFERENT, (first, later))
    for _ in range(_TRIES):
        before = moments.now()
        if before.is_still:
            (reference, _), (other, _) = (
                read.read_from(read.sides[0]),
                read.read_from(read.sides[1]),
            )
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


def _never_was(op: StoreOp, said: Answer, first: Answer, now: Answer) -> bool:
    """Return whether ``said`` was right at no time between two answers of the reference.

    Units come and go, but the one at an offset stays what it is, and no end of a queue is ever
    further than it is going to be. What is lacking is no difference: it may have come
    since.
    """
    if isinstance(said, FailedAnswer):
        return True
    if isinstance(said, PullAnswer):
        if not isinstance(now, PullAnswer):
            return True
        if said.high > max(now.high, first.high if isinstance(first, PullAnswer) else 0):
            return True
        return any(
            (right := now.at(offset)) is not None and right != row and offset >= now.low
            for offset, row in enumerate(said.rows, said.first)
        )
    if op is StoreOp.ESTIMATE:  # it extrapolates: by other units when some have gone
        return False
    known = [each for each in (first, now) if isinstance(each, int)]
    return said > max(known, default=0)
