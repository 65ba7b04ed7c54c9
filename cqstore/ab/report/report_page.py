"""The report as one HTML page: no scripts, no external resources, the result embedded."""

import json
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cqstore.ab.judging.judgement import ComparedFigure, Judgement, Outcome
from cqstore.ab.judging.outcome_counts import tally
from cqstore.ab.judging.paired_rounds import written_by_cause
from cqstore.ab.judging.side_figures import FIGURES, SIDE_FIGURES
from cqstore.ab.judging.words import (
    Measure,
    count_text,
    digits_text,
    percent_text,
    ratio_text,
    span_text,
    value_text,
    within_text,
)
from cqstore.ab.report.growth_plots import growth_plots
from cqstore.ab.report.plots import LinePlot, latency_plot, projection_plots, ratio_plot
from cqstore.ab.results.result import Result
from cqstore.store.errors import os_errors
from cqstore.store.files import replace_file
from cqstore.store.page_templates import page_templates

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATES = Path(__file__).with_name("templates")
_COLOURS = 5
_TEN = 10


def write_page(path: Path, result: Result, judgement: Judgement) -> None:
    """Write the HTML report durably; an existing file is replaced.

    Raises:
        StoreIOError: it cannot be written.
    """
    with os_errors("write the HTML report", path):
        replace_file(path, page(result, judgement).encode())


def page(result: Result, judgement: Judgement) -> str:
    """Return the HTML report of a result and its judgement; all their texts are escaped."""
    from markupsafe import Markup  # noqa: PLC0415 - comes with jinja2

    return _template().render(
        result=result, judgement=judgement, tally=tally(judgement),
        colours={side.name: _colour(result, side.name) for side in result.sides},
        works=[
            (workload, made, list(_figures(made.comparisons)), written_by_cause(workload))
            for workload, made in zip(result.workloads, judgement.workloads, strict=True)
        ],
        ratios=ratio_plot(judgement), latencies=_latencies(result, judgement),
        growth=list(growth_plots(result)),
        projected=list(projection_plots(judgement.projections)),
        footprint=list(_footprint(result)),
        command=shlex.join(result.command), embedded=Markup(_embedded(result)),
    ) + "\n"  # fmt: skip


@cache  # compiling it takes longer than most pages
def _template() -> "Template":
    """Return the template of the page, with the filters that it uses."""
    jinja = page_templates(_TEMPLATES)
    jinja.filters |= {
        "digits": digits_text,
        "ratio": ratio_text,
        "percent": percent_text,
        "within": within_text,
        "mark": lambda value: f"{value:.2g}" if value < _TEN else f"{value:,.0f}",
        "opening": lambda text: text[:1].upper() + text[1:],
    }
    jinja.globals |= {"value_text": value_text, "span_text": span_text, "count_text": count_text}
    return jinja.get_template("page.html")


def _figures(
    comparisons: Sequence[ComparedFigure],
) -> Iterator[tuple[ComparedFigure, list[ComparedFigure], float | None]]:
    """Yield each figure: one comparison for the reference, all comparisons, and the floor."""
    for key in FIGURES:
        compared = [each for each in comparisons if each.figure == key]
        sides = [each for each in compared if each.outcome is not Outcome.FLOOR]
        floors = [each.floor for each in compared if each.floor is not None]
        if sides:
            yield sides[0], sides, floors[0] if floors else None


def _footprint(result: Result) -> Iterator[tuple[str, Measure, list[float | None]]]:
    """Yield the resources of the queues: label, unit, and a value per side with a footprint."""
    feet = [side.footprint for side in result.sides if side.footprint is not None]
    for figure in SIDE_FIGURES:
        yield figure.label, figure.unit, [figure.of(foot, result.store) for foot in feet]


def _latencies(result: Result, judgement: Judgement) -> list[LinePlot]:
    """Return the plots of latencies, without withheld ones."""
    made = [latency_plot(result, workload) for workload in result.workloads]
    late = [
        latency_plot(result, workload, intended=True, without=judged.withheld)
        for workload, judged in zip(result.workloads, judgement.workloads, strict=True)
    ]
    return [plot for plot in made + late if plot is not None]


def _colour(result: Result, name: str) -> int:
    """Return the colour number of a side; a twin has the number of its side."""
    names = [side.name for side in result.sides if side.twin_of is None]
    side = next(side for side in result.sides if side.name == name)
    return names.index(side.twin_of or name) % _COLOURS


def _embedded(result: Result) -> str:
    """Return the result as JSON that cannot end the element that contains it."""
    text = json.dumps(result.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
