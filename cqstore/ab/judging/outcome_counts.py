"""The shortest summary: at how many workloads a side is better, worse, or neither."""

from collections import Counter

from cqstore.ab.judging.judgement import Judgement, Outcome
from cqstore.ab.judging.words import count_text


def tally(judgement: Judgement) -> list[str]:
    """Return one sentence per side."""
    told = []
    for side in judgement.sides:
        counts = Counter(
            said.outcome
            for workload in judgement.workloads
            for said in workload.sentences
            if said.side == side
        )
        parts = [f"{counts[each]} {each.value}" for each in Outcome if counts[each]]
        workloads = count_text(sum(counts.values()), "workload")
        told.append(
            f"{side} compared with {judgement.reference} at {workloads}: {', '.join(parts)}."
        )
    return told
