"""The shortest summary: at how many workloads a side is better, worse, or neither."""

from collections import Counter

from cqstore.ab.judging.judgement import Judgement, Outcome
from cqstore.ab.judging.words import count_text


def tally(judgement: Judgement) -> list[str]:
    """Return one sentence per side."""
    lines = []
    for side in judgement.sides:
        counts = Counter(
            sentence.outcome
            for workload in judgement.workloads
            for sentence in workload.sentences
            if sentence.side == side
        )
        parts = [f"{counts[each]} {each.value}" for each in Outcome if counts[each]]
        workloads = count_text(sum(counts.values()), "workload")
        lines.append(
            f"{side} compared with {judgement.reference} at {workloads}: {', '.join(parts)}."
        )
    return lines
