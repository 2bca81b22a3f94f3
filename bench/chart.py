"""A chart of "times RabbitMQ" from results: `python -m bench.chart RESULTS.json [MORE.json ...] OUT.svg`.

What comes in: results files, of which the last one that has a scenario counts; or a page with a table of figures.
What goes out: an SVG (or PNG, by the name's end) with a bar per scenario and broker. Rules: 1. the axis is
logarithmic and bars begin at the baseline, so that three times as fast and three times as slow are equally long; 2.
thin lines are the lowest and highest round; 3. equal results give equal bytes with one version of matplotlib: no
dates, no random ids, and text is kept as text, so that a change of one figure is a change of a few lines.
Not here: which figures are shown (`results.py`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.results import Results, Row, load, tabled

# A few steps of blue for amqpd and others; orange is where the baseline is better. Also told apart without colour.
COLOURS = ("#2563eb", "#93b4f5", "#0f766e", "#7c3aed")
WORSE = "#d97706"
SPREAD = "#1f2937"
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
INCHES_WIDE = 9.0
INCHES_A_BAR = 0.19
INCHES_AROUND = 1.15
STYLE: Any = {
    "svg.hashsalt": "amqpd bench",  # ids of clip paths are made from it, and would be random
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench.chart", description="Draw ratios from results files.")
    parser.add_argument(
        "results",
        nargs="+",
        type=Path,
        metavar="RESULTS.json",
        help="from python -m bench --json; or PAGE.md, with the table that python -m bench.document wrote",
    )
    parser.add_argument("out", type=Path, metavar="OUT.svg", help="an .svg or .png file")
    options = parser.parse_args(arguments)
    try:
        [first, *more] = options.results
        figures = tabled(first) if first.suffix == ".md" and not more else load(options.results)
        draw(figures, options.out)
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def draw(results: Results, out: Path) -> None:
    """Writes `out`. Raises BenchError if there is no ratio to draw, or no matplotlib."""
    rows = [row for row in results.shown() if row.broker != results.baseline and row.ratio is not None]
    if not rows:
        raise BenchError("no ratio in these results: was the baseline among the brokers?")
    try:
        import matplotlib as mpl
    except ImportError:
        raise BenchError("the chart needs matplotlib (pip install 'amqpd[bench]')") from None
    mpl.use("svg" if out.suffix == ".svg" else "agg")
    from matplotlib import pyplot

    brokers = [name for name in results.brokers if name != results.baseline]
    with mpl.rc_context(STYLE):
        height = INCHES_AROUND + INCHES_A_BAR * (len(rows) + 0.5 * len({row.label for row in rows}))
        figure, axes = pyplot.subplots(figsize=(INCHES_WIDE, height), layout="constrained")
        _bars(axes, rows, brokers)
        _axis(axes, rows, results.baseline)
        if len(brokers) > 1:
            _legend(axes, brokers, results.baseline)
        metadata = {"Date": None, "Creator": None} if out.suffix == ".svg" else {"Software": None}
        figure.savefig(out, metadata=metadata, dpi=110)
        pyplot.close(figure)


def _bars(axes: Any, rows: list[Row], brokers: list[str]) -> None:
    places, labels = [], []
    at = 0.0
    for label in dict.fromkeys(row.label for row in rows):
        group = [row for row in rows if row.label == label]
        for offset, row in enumerate(group):
            _bar(axes, row, at + offset, COLOURS[brokers.index(row.broker) % len(COLOURS)])
        places.append(at + (len(group) - 1) / 2)
        labels.append(label)
        at += len(group) + 0.5
    axes.set_yticks(places, labels)
    axes.set_ylim(at - 0.6, -0.9)
    axes.tick_params(axis="y", length=0)


def _bar(axes: Any, row: Row, at: float, colour: str) -> None:
    ratio = row.ratio or 1.0
    lowest, highest = row.ratio_lowest or ratio, row.ratio_highest or ratio
    better = ratio >= 1
    fill = {"color": colour} if better else {"color": "white", "edgecolor": WORSE, "hatch": "////"}
    axes.barh(at, ratio - 1, left=1, height=0.82, zorder=2, **fill)
    axes.plot([lowest, highest], [at, at], color=SPREAD, linewidth=1, zorder=3, solid_capstyle="butt")
    axes.annotate(
        ratio_text(ratio),
        (max(highest, ratio, 1.0), at),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=SPREAD if better else WORSE,
        fontweight="normal" if better else "bold",
    )


def ratio_text(ratio: float) -> str:
    """Three digits that count, as in 0.79x, 3.10x, 16.2x, 128x."""
    digits = 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:.{digits}f}x"


def _axis(axes: Any, rows: list[Row], baseline: str) -> None:
    ends = [end for row in rows for end in (row.ratio, row.ratio_lowest, row.ratio_highest) if end]
    axes.set_xscale("log")
    axes.set_xlim(min(0.8, *ends) / 1.25, max(2.0, *ends) * 1.6)
    left, right = axes.get_xlim()
    ticks = [tick for tick in TICKS if left <= tick <= right]
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", color="#e5e7eb", linewidth=0.8, zorder=0)
    axes.axvline(1, color=SPREAD, linewidth=1.4, zorder=4)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_title(f"Times {product_name(baseline)}: right of 1x is better", loc="left", fontsize=12)
    spread = any(row.ratio_lowest for row in rows)
    axes.set_xlabel("logarithmic; bars are medians" + ", thin lines the lowest and highest round" * spread)


def product_name(broker: str) -> str:
    return {"rabbitmq": "RabbitMQ", "lavinmq": "LavinMQ"}.get(broker, broker)


def _legend(axes: Any, brokers: list[str], baseline: str) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(color=COLOURS[at % len(COLOURS)], label=name) for at, name in enumerate(brokers)]
    patches.append(Patch(facecolor="white", edgecolor=WORSE, hatch="////", label=f"below {product_name(baseline)}"))
    above = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.2}
    axes.legend(handles=patches, ncols=len(patches), frameon=False, fontsize=8, **above)


if __name__ == "__main__":
    sys.exit(main())
