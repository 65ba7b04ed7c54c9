"""The overall answer: the recommended backend for this store, with its confidence."""

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
    """Return the ``names`` of workloads that match a name, or a pattern with ``*`` and ``?``.

    ``given``: as on the command line, several separated by commas.

    Raises:
        StoreConfigError: a pattern matches no workload.
    """
    found: list[str] = []
    for pattern in [part.strip() for text in given for part in text.split(",") if part.strip()]:
        met = fnmatch.filter(names, pattern)
        if not met:
            raise StoreConfigError(
                f"--matters {pattern}: no measured workload matches; workloads: {', '.join(names)}"
            )
        found += [name for name in met if name not in found]
    return found


_FOR = {"follow": "this broker", "clients": "these clients"}
_NAMED = 4
"""Maximum number of workloads listed by name."""
_MIN_CALM = 0.5
"""Share of calm rounds below which all rounds count, see ``cqstore.ab.judging.paired_rounds``."""


def make_banner(
    result: Result, answers: AnswersJudgement, workloads: Sequence[WorkloadJudgement]
) -> Banner:
    """Return the banner for the workloads that matter; for all workloads if none was named."""
    names = result.matters or [each.name for each in workloads]
    counted = [each for each in workloads if each.name in names]
    busy = _busy([each for each in result.workloads if each.name in names])
    absent = [each.name for each in result.workloads if each.name in names and each.not_measured]
    missing = _missing(absent, len(counted))
    if answers.status != "same":
        return Banner(text="No verdict: " + _no_answers(result, answers), matters=result.matters)
    side, text = _describe(result, counted, _Places(len(counted), named=bool(result.matters)))
    if busy and side is None and not _is_decided(counted):
        text = f"Too busy for a conclusion. {busy}"
        return Banner(text=text, busy=busy, missing=missing, matters=result.matters)
    unsure = [each.name for each in counted if _is_undecided(each) and each.name not in absent]
    sure = _sure(percent_text(result.method.confidence), unsure, is_busy=bool(busy))
    return Banner(
        text=text, sure=sure, side=side, busy=busy, missing=missing, matters=result.matters
    )


def _missing(absent: Sequence[str], total: int) -> str:
    """Return the sentence for deciding workloads that were not measured; empty without any."""
    if not absent:
        return ""
    were = "was" if len(absent) == 1 else "were"
    return (
        f"{len(absent)} of {count_text(total, 'workload')} {were} not measured: {_named(absent)}."
    )


def _sure(confidence: str, unsure: Sequence[str], *, is_busy: bool) -> str:
    """Return the sentence with the confidence of the answer."""
    sentence = f"{confidence} confidence that all of this holds together"
    if is_busy:
        sentence = (
            f"Less than {confidence} confidence: too few undisturbed rounds, so all of them count"
        )
    if unsure:
        sentence += f"; no conclusion at {_named(unsure)}"
    return f"{sentence}."


class _Places(NamedTuple):
    """The deciding workloads, as text for sentences."""

    total: int
    named: bool
    """Whether the user named them with ``--matters``."""

    @property
    def all(self) -> str:
        """Return the text for all deciding workloads."""
        matter = " that matter" if self.named else ""
        one = f"the only workload{matter}{'s' if self.named else ''}"
        return one if self.total == 1 else f"the {self.total} workloads{matter}"

    def text(self, names: Sequence[str]) -> str:
        """Return the number and the names of some workloads."""
        how_many = self.all if self.total == 1 else f"{len(names)} of {self.all}"
        return f"{how_many} ({_named(names)})"


def _no_answers(result: Result, answers: AnswersJudgement) -> str:
    loads = "the clients' loads differed."
    return {
        "different": loads if result.kind == "clients" else "the sides gave different answers.",
        "too few": "too few answers were compared.",
        "none": "no answer was compared.",
    }[answers.status]


def _busy(workloads: Sequence[WorkloadFigures]) -> str:
    """Return a sentence if a workload had fewer than half of its rounds undisturbed."""
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
        f" disturbed, mostly by {reason}."
    )


def _describe(
    result: Result, workloads: Sequence[WorkloadJudgement], places: "_Places"
) -> tuple[str | None, str]:
    """Return the recommended side, if there is one, and the sentence for it."""
    reference, sides = result.sides[0].name, compared_sides(result)
    recommended = f"Recommended for {_FOR.get(result.kind, 'this store')}"
    better = {side: _names(workloads, side, Outcome.BETTER) for side in sides}
    worse = {side: _names(workloads, side, Outcome.WORSE) for side in sides}
    winners = [side for side in sides if better[side] and not worse[side]]
    if winners:
        best = max(winners, key=lambda side: len(better[side]))
        others = [side for side in winners if side != best]
        also = f" Also better and never worse: {', '.join(others)}." if others else ""
        return best, (
            f"{recommended}: {best}. It is better than {reference} at"
            f" {places.text(better[best])} and worse at none.{also}"
        )
    losers = [side for side in sides if worse[side] and not better[side]]
    if losers and len(losers) == len(sides):
        reasons = "; ".join(
            f"{side} is worse at {places.text(worse[side])} and better at none" for side in sides
        )
        return reference, f"{recommended}: {reference}, because {reasons}."
    torn = [side for side in sides if better[side] and worse[side]]
    if torn:
        reasons = "; ".join(
            f"{side} is better than {reference} at {_named(better[side])} and worse at"
            f" {_named(worse[side])}"
            for side in torn
        )
        return None, f"It depends on the workloads that matter to you (--matters): {reasons}."
    if all(_is_undecided(each) for each in workloads):
        return None, f"No conclusion: too few or too noisy rounds at {places.all}."
    return None, f"No preference: no difference was shown at {places.all}."


def _names(workloads: Sequence[WorkloadJudgement], side: str, outcome: Outcome) -> list[str]:
    return [
        each.name
        for each in workloads
        if any((sentence.side, sentence.outcome) == (side, outcome) for sentence in each.sentences)
    ]


def _is_decided(workloads: Sequence[WorkloadJudgement]) -> bool:
    outcomes = {sentence.outcome for each in workloads for sentence in each.sentences}
    return bool(outcomes & {Outcome.BETTER, Outcome.WORSE})


def _is_undecided(workload: WorkloadJudgement) -> bool:
    known = {Outcome.BETTER, Outcome.WORSE, Outcome.SAME}
    return not any(sentence.outcome in known for sentence in workload.sentences)


def _named(names: Sequence[str]) -> str:
    shown = list(names[:_NAMED])
    if more := len(names) - len(shown):
        shown.append(f"{more} more")
    return ", ".join(shown)
