"""The overall answer: which backend for this store, and how sure that is."""

import fnmatch
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from cqstore.ab.judging.judgement import AnswersJudgement, Banner, Outcome, WorkloadJudgement
from cqstore.ab.judging.verdicts import compared_sides
from cqstore.ab.judging.words import count_text, percent_text
from cqstore.ab.results.result import Result, WorkloadFigures
from cqstore.store.errors import StoreConfigError


def matching(given: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the ``names`` of workloads that are meant: by name, or with ``*`` and ``?``.

    ``given``: as on the command line, several with commas.

    Raises:
        StoreConfigError: one of them meets none.
    """
    found: list[str] = []
    for pattern in [part.strip() for text in given for part in text.split(",") if part.strip()]:
        met = fnmatch.filter(names, pattern)
        if not met:
            raise StoreConfigError(
                f"--matters {pattern}: no such workload is measured; there are {', '.join(names)}"
            )
        found += [name for name in met if name not in found]
    return found


_NAMED = 4
"""Workloads that are named in a row; of more, how many more there are."""
_MIN_CALM = 0.5
"""Share of the rounds; with fewer all of them count, see ``cqstore.ab.judging.paired_rounds``."""


def make_banner(
    result: Result, answers: AnswersJudgement, workloads: Sequence[WorkloadJudgement]
) -> Banner:
    """Return the answer by the workloads that matter, by all if none was named."""
    names = result.matters or [each.name for each in workloads]
    counted = [each for each in workloads if each.name in names]
    busy = _busy([each for each in result.workloads if each.name in names])
    absent = [each.name for each in result.workloads if each.name in names and each.not_measured]
    missing = _missing(absent, len(counted))
    if answers.status != "same":
        return Banner(text="No verdict: " + _no_answers(answers), matters=result.matters)
    side, text = _describe(result, counted, _Places(len(counted), named=bool(result.matters)))
    if busy and side is None and not _is_decided(counted):
        text = f"Too busy to tell. {busy}"
        return Banner(text=text, busy=busy, missing=missing, matters=result.matters)
    unsure = [each.name for each in counted if _is_undecided(each) and each.name not in absent]
    sure = _sure(percent_text(result.method.confidence), unsure, is_busy=bool(busy))
    return Banner(
        text=text, sure=sure, side=side, busy=busy, missing=missing, matters=result.matters
    )


def _missing(absent: Sequence[str], total: int) -> str:
    """Return the sentence for workloads that count and were not measured; empty without any."""
    if not absent:
        return ""
    were = "was" if len(absent) == 1 else "were"
    return (
        f"{len(absent)} of {count_text(total, 'workload')} {were} not measured: {_named(absent)}."
    )


def _sure(confidence: str, unsure: Sequence[str], *, is_busy: bool) -> str:
    """Return the sentence that says how sure the answer is."""
    told = f"{confidence} sure that all of it holds at once"
    if is_busy:
        told = f"Less than {confidence} sure: disturbed rounds count, as too few others remain"
    if unsure:
        told += f"; nothing can be told at {_named(unsure)}"
    return f"{told}."


class _Places(NamedTuple):
    """The workloads that count, to be said."""

    total: int
    named: bool
    """By the user, as those that matter."""

    @property
    def all(self) -> str:
        """Return the words for all workloads that count."""
        matter = " that matter" if self.named else ""
        one = f"the one workload{matter}{'s' if self.named else ''}"
        return one if self.total == 1 else f"the {self.total} workloads{matter}"

    def text(self, names: Sequence[str]) -> str:
        """Return how many some are, and which."""
        how_many = self.all if self.total == 1 else f"{len(names)} of {self.all}"
        return f"{how_many} ({_named(names)})"


def _no_answers(answers: AnswersJudgement) -> str:
    return {
        "different": "the sides answer differently.",
        "too few": "too few answers were compared.",
        "none": "no answer was compared.",
    }[answers.status]


def _busy(workloads: Sequence[WorkloadFigures]) -> str:
    """Return a sentence if at one of them fewer than half of the rounds were calm."""
    turns = disturbed = 0
    reasons, at = Counter[str](), list[str]()
    for workload in workloads:
        counted = [turn for turn in workload.rounds if not turn.warm_up]
        marked = [turn for turn in counted if turn.disturbed]
        turns += len(counted)
        disturbed += len(marked)
        reasons.update(turn.disturbed.split(" took ")[0] for turn in marked)
        rounds = {turn.number for turn in counted}
        if len(rounds) - len({turn.number for turn in marked}) < _MIN_CALM * len(rounds):
            at.append(workload.name)
    if not at:
        return ""
    ((reason, _),) = reasons.most_common(1)
    return (
        f"The machine was busy at {_named(at)}: {disturbed} of {count_text(turns, 'turn')} were"
        f" disturbed, most of them by {reason}."
    )


def _describe(
    result: Result, workloads: Sequence[WorkloadJudgement], places: "_Places"
) -> tuple[str | None, str]:
    """Return the side that is better for this store, if one is, and the sentence that says so."""
    reference, sides = result.sides[0].name, compared_sides(result)
    better = {side: _names(workloads, side, Outcome.BETTER) for side in sides}
    worse = {side: _names(workloads, side, Outcome.WORSE) for side in sides}
    winners = [side for side in sides if better[side] and not worse[side]]
    if winners:
        best = max(winners, key=lambda side: len(better[side]))
        others = [side for side in winners if side != best]
        also = f" So are {' and '.join(others)}, at fewer." if others else ""
        return best, (
            f"{best} for this store: better than {reference} at {places.text(better[best])}, worse"
            f" at none.{also}"
        )
    losers = [side for side in sides if worse[side] and not better[side]]
    if losers and len(losers) == len(sides):
        told = "; ".join(
            f"{side} is worse at {places.text(worse[side])}, better at none" for side in sides
        )
        return reference, f"{reference} for this store: {told}."
    torn = [side for side in sides if better[side] and worse[side]]
    if torn:
        told = "; ".join(
            f"{side} is better than {reference} at {_named(better[side])}, worse at"
            f" {_named(worse[side])}"
            for side in torn
        )
        return None, f"It depends on what matters (--matters): {told}."
    if all(_is_undecided(each) for each in workloads):
        return None, f"Nothing can be told: too little or too noisy at {places.all}."
    return None, f"Either: no difference was shown at {places.all}."


def _names(workloads: Sequence[WorkloadJudgement], side: str, outcome: Outcome) -> list[str]:
    return [
        each.name
        for each in workloads
        if any((said.side, said.outcome) == (side, outcome) for said in each.sentences)
    ]


def _is_decided(workloads: Sequence[WorkloadJudgement]) -> bool:
    told = {said.outcome for each in workloads for said in each.sentences}
    return bool(told & {Outcome.BETTER, Outcome.WORSE})


def _is_undecided(workload: WorkloadJudgement) -> bool:
    known = {Outcome.BETTER, Outcome.WORSE, Outcome.SAME}
    return not any(said.outcome in known for said in workload.sentences)


def _named(names: Sequence[str]) -> str:
    shown = list(names[:_NAMED])
    if more := len(names) - len(shown):
        shown.append(f"{more} more")
    return ", ".join(shown)
