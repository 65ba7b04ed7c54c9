"""The report in the terminal, as a table, JSON or JSON lines."""

from collections.abc import Iterator

import typer

from cqstore.ab.judging.judgement import Banner, ComparedFigure, Judgement, Outcome
from cqstore.ab.judging.outcome_counts import tally
from cqstore.ab.judging.result_changes import Change, ResultChanges
from cqstore.ab.judging.words import ratio_text, span_text, value_text
from cqstore.cli.output import OutputFormat, output, to_json
from cqstore.cli.table import Row

_SHORT = {Outcome.SAME: "no difference", Outcome.NOISY: "too noisy"}


def print_report(judgement: Judgement, kind: OutputFormat) -> None:
    """Print a judgement: sentences and tables, all of it as JSON, or one JSON line per figure."""
    if kind is OutputFormat.JSON:
        output(kind).record(judgement.model_dump(mode="json"))
    elif kind is OutputFormat.JSONL:
        output(kind).rows(_lines(judgement))
    else:
        _print_text(judgement)


def _print_text(judgement: Judgement) -> None:
    """Print a judgement as text: banner, answers, sentences by workload, tables, notes."""
    _print_banner(judgement.banner)
    _print_answers(judgement)
    for line in tally(judgement):
        typer.echo(line)
    typer.echo("")
    for workload in judgement.workloads:
        for sentence in workload.sentences:
            typer.echo(f"  {sentence.text}")
            if sentence.also:
                typer.echo(f"    also: {'; '.join(sentence.also)}")
        for why in workload.withheld.values():
            typer.echo(f"    withheld: {why}")
    for rows in (_headlines(judgement), _footprint(judgement), _projections(judgement)):
        if rows:
            typer.echo("")
            output(OutputFormat.TABLE).rows(rows)
    if judgement.notes:
        typer.echo("")
    for note in judgement.notes:
        typer.echo(note)


def _print_banner(banner: Banner) -> None:
    """Print the banner; whether the machine was busy comes first."""
    if banner.busy and banner.busy not in banner.text:
        typer.echo(banner.busy)
    typer.echo(banner.text)
    for sentence in (banner.missing, banner.sure):
        if sentence:
            typer.echo(sentence)


def _print_answers(judgement: Judgement) -> None:
    typer.echo(judgement.answers.sentence)
    for digest in judgement.answers.digests:
        typer.echo(f"  {digest}")
    for each in judgement.answers.first:
        typer.echo(f"  {each.workload}: {to_json(each.operation)}")
        for side, answer in each.answers.items():
            typer.echo(f"    {side}: {answer}")


def _headlines(judgement: Judgement) -> list[Row]:
    """Return one row per workload and side: the figures of the sentences."""
    found = [
        (workload.name, compared)
        for workload in judgement.workloads
        for compared in workload.deciding()
    ]
    return [
        {
            "workload": name,
            "figure": compared.label,
            judgement.reference: value_text(compared.reference, compared.unit),
            "side": compared.side,
            "its value": value_text(compared.value, compared.unit),
            "times as good": _times(compared),
            "interval": _span(compared),
            "noise": ratio_text(compared.floor) if compared.floor else "",
            "rounds": compared.rounds,
            "verdict": _SHORT.get(compared.outcome, compared.outcome.value),
        }
        for name, compared in found
    ]


def _footprint(judgement: Judgement) -> list[Row]:
    """Return the rows of the resources of the queues."""
    return [
        {
            "queues": compared.label,
            judgement.reference: value_text(compared.reference, compared.unit),
            "side": compared.side,
            "its value": value_text(compared.value, compared.unit),
            "times as good": _times(compared),
        }
        for compared in judgement.footprint
        if compared.outcome is not Outcome.FLOOR
    ]


def _projections(judgement: Judgement) -> list[Row]:
    """Return the rows of the projected resources."""
    return [
        {
            "side": each.side,
            f"at {each.queues:,} queues": each.label,
            "projected": value_text(each.value, each.unit),
            "per queue": value_text(each.a_queue, each.unit),
            "measured at": ", ".join(
                f"{queues:,}: {value_text(value, each.unit)}" for queues, value in each.points
            ),
            "extrapolated, times": ratio_text(each.beyond),
        }
        for each in judgement.projections
    ]


def _times(compared: ComparedFigure | Change) -> str:
    return ratio_text(compared.as_good.ratio) if compared.as_good else ""


def _span(compared: ComparedFigure | Change) -> str:
    if compared.as_good is None or compared.low is None:
        return ""
    return span_text(compared.as_good.low, compared.as_good.high)


def _lines(judgement: Judgement) -> Iterator[Row]:
    """Yield the answers, then every sentence and figure, with the kind of each line."""
    yield {"kind": "answers", **judgement.answers.model_dump(mode="json")}
    for workload in judgement.workloads:
        for sentence in workload.sentences:
            yield {
                "kind": "sentence",
                "workload": workload.name,
                **sentence.model_dump(mode="json"),
            }
        for compared in workload.comparisons:
            yield {"kind": "figure", "workload": workload.name, **compared.model_dump(mode="json")}
    for compared in judgement.footprint:
        yield {"kind": "footprint", **compared.model_dump(mode="json")}
    for each in judgement.projections:
        yield {"kind": "projection", **each.model_dump(mode="json")}


def print_changes(changes: ResultChanges, kind: OutputFormat) -> None:
    """Print what changed between two results."""
    if kind is OutputFormat.JSON:
        output(kind).record(changes.model_dump(mode="json"))
        return
    if kind is OutputFormat.JSONL:
        output(kind).rows(change.model_dump(mode="json") for change in changes.changes)
        return
    for title, lines in (
        ("No figures can be compared:", changes.cannot),
        ("Not compared:", changes.left_out),
        ("Other differences that may be the cause:", changes.circumstances),
        ("What changed:", _changed_texts(changes)),
    ):
        if lines:
            typer.echo("\n  ".join([title, *lines]))
    output(kind).rows(map(_changed, changes.changes))


def _changed_texts(changes: ResultChanges) -> list[str]:
    """Return the sentences with a change, and one with the number of figures without."""
    texts = [each.text for each in changes.changes if each.outcome is not Outcome.SAME]
    if same := len(changes.changes) - len(texts):
        texts.append(f"No change shown in {same} of {len(changes.changes)} figures.")
    return texts


def _changed(change: Change) -> Row:
    """Return the row of a change between two results."""
    return {
        "workload": change.workload,
        "side": change.side,
        "figure": change.label,
        "A": value_text(change.a, change.unit),
        "B": value_text(change.b, change.unit),
        "B vs. A, times as good": _times(change),
        "interval": _span(change),
        "vs. reference in A": change.beside_a,
        "vs. reference in B": change.beside_b,
        "change": _SHORT.get(change.outcome, change.outcome.value),
    }
