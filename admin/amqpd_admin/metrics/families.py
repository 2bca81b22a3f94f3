"""A family of samples: its name, its kind, what it says, and its rows.

What comes in: families with rows. What goes out: the text of some rows, by prometheus-client.
Rules: 1. A counter's name is without `_total`, which the text has. 2. The head of a family is written once, before
its first row; a family without rows has no text. 3. A name of AMQP may be no UTF-8: what is none is written in
escapes, as `\\xff`.
Not here: which families there are (the other modules), how long ones are written (`text.py`).

Source: https://prometheus.io/docs/instrumenting/exposition_formats (text format 0.0.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
    UntypedMetricFamily,
)
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
COUNTER, GAUGE, UNTYPED, HISTOGRAM, SUMMARY = "counter", "gauge", "untyped", "histogram", "summary"
KINDS: dict[str, Any] = {
    COUNTER: CounterMetricFamily,
    GAUGE: GaugeMetricFamily,
    UNTYPED: UntypedMetricFamily,
    HISTOGRAM: HistogramMetricFamily,
    SUMMARY: SummaryMetricFamily,
}
HEAD_LINES = 2

Row = tuple[Any, ...]
"""values of the labels, in a tuple; then a number, or what prometheus-client wants of this kind"""


@dataclass(frozen=True)
class Family:
    """The head of a family of samples: name, kind, help and labels, without its rows."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


Part = tuple[Family, Iterable[Row]]
"""a family with its rows"""


def one(name: str, kind: str, help: str, value: float | None) -> Part:
    """A family of one number; of none, where there is none to tell."""
    return Family(name, kind, help), [] if value is None else [((), value)]


def written(family: Family, rows: Iterable[Row], head: bool) -> bytes:
    """The text of these rows, with the family's head or without."""
    metric = KINDS[family.kind](family.name, family.help, labels=family.labels)
    for labels, *values in rows:
        metric.add_metric([_utf8(each) for each in labels], *values)
    text = generate_latest(_Only(metric))
    return text if head else text.split(b"\n", HEAD_LINES)[HEAD_LINES]


class _Only(Collector):
    """A collector of one metric, which prometheus-client wants for a registry."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def _utf8(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
