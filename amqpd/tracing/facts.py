"""A span, as the core tells it: values only.

What comes in: nothing. What goes out: `SpanFact`, and who it is told to.
Rules: 1. Names that clients chose are as they came (`surrogateescape`): what sends them on makes them sendable. 2.
Attributes have the names of OpenTelemetry's semantic conventions for messaging where these have one, and begin with
`amqpd.` else.
Not here: when there is one (`tracer.py`).

Source: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/ and .../messaging/rabbitmq/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from amqpd.tracing.context import TraceContext

Value = str | int | bool | list[str]


class SpanFact(NamedTuple):
    """One span, as the core tells it; times are in microseconds since the epoch."""

    name: str
    context: TraceContext
    """whose trace it is in"""
    span_id: int
    parent_id: int
    """`context.span_id`, or that of another span of ours"""
    serves: bool
    """it is the broker's half of what a client does; else what goes on inside"""
    start_us: int
    end_us: int
    attributes: Mapping[str, Value]
    link_id: int = 0
    """another span of the trace, which it follows from; 0: none"""
    error: str = ""
    """why it failed; empty: it did not"""


Tell = Callable[[SpanFact], None]
