"""Which figures of two results can be compared, and what else differs between the results."""

import math
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from cqstore.ab.judging.answers import judge_answers
from cqstore.ab.results.result import Result, Shape, Side, WorkloadFigures

_MADE_BY = {"clients": "live --client-command"}
_WITH_SHAPES = {
    "run": ("topics", "queues", "units", "log_bytes"),
    "clients": ("topics", "queues", "units"),
}
"""Kind of result → what must be the same of the data. The sizes of clients' records vary."""
_SAME_RATE = 0.01
"""Relative difference below which two rates count as equal: rates are measured per turn."""


class Pair(NamedTuple):
    """Two results; sentences call them A (``before``) and B (``after``)."""

    before: Result
    after: Result


def obstacles(pair: Pair) -> Iterator[str]:
    """Yield the reasons why no figure can be compared, one sentence each."""
    before, after = pair
    for name, result in zip("AB", pair, strict=True):
        answers = judge_answers(result)
        if answers.status != "same":
            yield f"The figures of {name} cannot be used: {answers.sentence}"
    if before.kind != after.kind:
        one, other = (_MADE_BY.get(each.kind, each.kind) for each in pair)
        yield f"A was made by ab {one}, B by ab {other}."
        return
    if before.kind == "clients" and before.store.root != after.store.root:
        yield f"The clients differ: {before.store.root} in A, {after.store.root} in B."
    if before.kind in _WITH_SHAPES:
        if shapes := list(_shapes(before.store, after.store, _WITH_SHAPES[before.kind])):
            yield f"The stores differ: {'; '.join(shapes)}."
        one, other = (each.trace.digest if each.trace else "" for each in pair)
        if one != other:
            yield f"The traces differ: {_short(one)} in A, {_short(other)} in B."
    if before.method.cache is not after.method.cache:
        yield f"The page cache was {before.method.cache} in A, {after.method.cache} in B."


def sides_of_both(pair: Pair) -> list[str]:
    """Return the sides that are the same in both results, without twins."""
    there = {side.name: side for side in pair.after.sides}
    return [
        side.name
        for side in pair.before.sides
        if side.twin_of is None and side.name in there and _is_same(side, there[side.name])
    ]


def workloads_of_both(pair: Pair) -> list[tuple[WorkloadFigures, WorkloadFigures]]:
    """Return the workloads that ran in the same way in both results."""
    there = {workload.name: workload for workload in pair.after.workloads}
    return [
        (workload, there[workload.name])
        for workload in pair.before.workloads
        if workload.name in there and not _otherwise(workload, there[workload.name])
    ]


def left_out(pair: Pair) -> Iterator[str]:
    """Yield the sides and workloads that cannot be compared, with the reason, one sentence each."""
    one, other = ({side.name: side for side in result.sides if not side.twin_of} for result in pair)
    yield from _alone("side", one.keys(), other.keys())
    for name in (each for each in one if each in other):
        if not _is_same(one[name], other[name]):
            yield f"The side {name} is {one[name].given} in A, {other[name].given} in B."
    before, after = ({each.name: each for each in result.workloads} for result in pair)
    yield from _alone("workload", before.keys(), after.keys())
    for name in (each for each in before if each in after):
        if why := _otherwise(before[name], after[name]):
            yield f"The workload {name} {why}."


def _alone(kind: str, one: Set[str], other: Set[str]) -> Iterator[str]:
    for place, names in (("A", one - other), ("B", other - one)):
        for name in sorted(names):
            yield f"The {kind} {name} is only in {place}."


def circumstances(pair: Pair) -> Iterator[str]:
    """Yield other differences that may be the cause of a change, one sentence each."""
    roots = [result.store.root for result in pair]
    if roots[0] != roots[1]:
        yield f"store: {roots[0]} in A, {roots[1]} in B"
    one, other = (result.machine.model_dump() for result in pair)
    versions = one.pop("versions"), other.pop("versions")
    for name, value in one.items():
        if value != other[name]:
            yield f"{name.replace('_', ' ')}: {value} in A, {other[name]} in B"
    for name in sorted(versions[0].keys() | versions[1].keys()):
        found = [each.get(name, "none") for each in versions]
        if found[0] != found[1]:
            yield f"version of {name}: {found[0]} in A, {found[1]} in B"
    for name in ("rounds", "confidence", "seed", "warm_up"):
        found = [getattr(result.method, name) for result in pair]
        if found[0] != found[1]:
            yield f"{name.replace('_', ' ')}: {found[0]} in A, {found[1]} in B"


def _is_same(one: Side, other: Side) -> bool:
    return (one.backend, one.options, one.given) == (other.backend, other.options, other.given)


def _otherwise(one: WorkloadFigures, other: WorkloadFigures) -> str:
    """Return why two workloads with the same name differ; empty if they do not."""
    if one.not_measured or other.not_measured:
        return "was not measured in both"
    if one.mode != other.mode:
        return f"is {one.mode} loop in A, {other.mode} loop in B"
    if not math.isclose(one.offered or 0, other.offered or 0, rel_tol=_SAME_RATE):
        rates = [f"{each.offered:,.0f}" if each.offered else "no" for each in (one, other)]
        return f"had {rates[0]} operations per second due in A, {rates[1]} in B"
    return ""


def _shapes(one: Shape, other: Shape, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        found = getattr(one, name), getattr(other, name)
        if found[0] != found[1]:
            yield f"{name.replace('_', ' ')} {found[0]:,} in A, {found[1]:,} in B"


def _short(digest: str) -> str:
    return digest[:12] or "none"
