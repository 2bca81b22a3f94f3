"""Charts as inline SVG, in the colours of the page they stand in.

What comes in: series of points. What goes out: two drawings of each chart, for a screen and for a phone.
Rules: 1. The same points give the same text: no date, fixed names of the parts. 2. Colours are the page's variables,
so dark mode needs no other drawing; text is text, in the page's font. 3. Legends are the page's, not the drawing's.
Not here: what is drawn (`sections.py`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import matplotlib
import matplotlib.dates
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

# Its functions have no types.
_dates: Any = matplotlib.dates

# Colours that nothing else has, until they are the page's variables.
_SERIES = ("#a1b201", "#a1b202", "#a1b203", "#a1b204", "#a1b205", "#a1b206")
_INK, _GRID, _BAD = "#a1b210", "#a1b211", "#a1b212"
_VARIABLES = {name: f"var(--series-{at})" for at, name in enumerate(_SERIES, 1)}
_VARIABLES |= {_INK: "var(--quiet)", _GRID: "var(--line)", _BAD: "var(--bad)"}
SERIES_MAX = len(_SERIES)
_AROUND_DAYS = 5 / 1440
"""to the left and to the right of what is alone in a chart"""

# Inches at 72 points; the text is 11 pixels at these widths, which are about those of the page's column.
_SIZES = {"wide": (12.6, 3.6), "narrow": (4.7, 3.3)}
_STYLE = {
    "svg.fonttype": "none",
    "font.size": 11,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
}


@dataclass(frozen=True)
class Series:
    """`colour`: which of SERIES_MAX, from 0."""

    name: str
    points: list[tuple[datetime, float]]
    colour: int = 0
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """`says`: what it shows, for who does not see it."""

    title: str
    says: str
    series: Sequence[Series]
    wide: str
    narrow: str


def lines(
    title: str, says: str, series: Sequence[Series], unit: Any, log: bool = False, mark: float | None = None
) -> Chart:
    """`unit`: a figure as text; `mark`: a level to be seen beside the lines."""

    def draw(axes: Axes) -> None:
        for each in series:
            times, values = _dates.date2num([at for at, _ in each.points]), [value for _, value in each.points]
            style: Any = (0, (4, 2)) if each.dashed else "solid"
            alone = "o" if len(values) == 1 else ""
            axes.plot(times, values, color=_SERIES[each.colour], linewidth=1.6, linestyle=style, marker=alone)
        moments = {at for each in series for at, _ in each.points}
        if len(moments) == 1:
            # Left to itself, the axis would show years around it.
            (middle,) = _dates.date2num(list(moments))
            axes.set_xlim(middle - _AROUND_DAYS, middle + _AROUND_DAYS)
        if log:
            low, high = _ends(series)
            axes.set_yscale("log")
            # One label for each decade is few when there are few of them.
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=0)
        if mark is not None:
            axes.axhline(mark, color=_BAD, linewidth=1.2)

    return _chart(title, says, series, unit, draw)


def bars(
    title: str, says: str, series: Sequence[Series], unit: Any, step_s: float, marks: Sequence[datetime] = ()
) -> Chart:
    """Stacked, the first at the bottom; all series have the same times. `marks`: times to be seen."""

    def draw(axes: Axes) -> None:
        below = [0.0] * len(series[0].points)
        for each in series:
            values = [value for _, value in each.points]
            left = _dates.date2num([at for at, _ in each.points])
            axes.bar(left, values, step_s / 86400 * 0.86, below, align="edge", color=_SERIES[each.colour])
            below = [low + value for low, value in zip(below, values, strict=True)]
        for mark in _dates.date2num(list(marks)):
            axes.axvline(mark + step_s / 86400 / 2, color=_BAD, linewidth=1.6)

    return _chart(title, says, series, unit, draw)


def _ends(series: Sequence[Series]) -> tuple[float, float]:
    values = [value for each in series for _, value in each.points]
    return min(values), max(values)


def _chart(title: str, says: str, series: Sequence[Series], unit: Any, draw: Any) -> Chart:
    return Chart(title, says, series, **{size: _svg(f"{title} {size}", size, unit, draw) for size in _SIZES})


def _svg(name: str, size: str, unit: Any, draw: Any) -> str:
    style: Any = {**_STYLE, "svg.hashsalt": name}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=_SIZES[size], layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        draw(axes)
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.tick_params(which="both", length=0)
        axes.margins(x=0.01)
        dates = _dates.AutoDateLocator(maxticks=8 if size == "wide" else 4, minticks=3)
        # With few ticks it finds nothing that fits two minutes, two hours, two days or a quarter, and warns.
        dates.intervald[_dates.SECONDLY] = dates.intervald[_dates.MINUTELY] = [1, 2, 5, 10, 15, 20, 30, 60]
        dates.intervald[_dates.HOURLY] = [1, 2, 3, 4, 6, 12, 24]
        dates.intervald[_dates.DAILY] = [1, 2, 3, 7, 14, 21, 28]
        axes.xaxis.set_major_locator(dates)
        axes.xaxis.set_major_formatter(_dates.ConciseDateFormatter(dates))
        axes.xaxis.get_offset_text().set_color(_INK)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: unit(value)))
        if axes.get_yscale() == "linear":
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    return _inline(text.getvalue())


def _inline(svg: str) -> str:
    """Without what is only for a file of its own, and names that a second drawing in the page would have too."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r"font: [^;\"]*;?", "font-size: 11px;", svg)
    used = set(re.findall(r"#([\w.-]+)", svg))
    svg = re.sub(r' id="([\w.-]+)"', lambda found: found[0] if found[1] in used else "", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    return svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)
