"""What the core tells of traced messages, on its way to the exporter.

What comes in: `SpanFact`s, from within the pump's turns. What goes out: the same to the exporter, a few at a time;
what was lost, in the log and in figures.
Rules: 1. `tell` never waits: beyond `spans_max` that wait here or in the exporter, a span is dropped and counted. 2.
A line about losses at most once a minute. 3. At the end what waits is exported within FLUSH_S, or lost.
Not here: OpenTelemetry (`otel.py`), when there is a span (`tracing/tracer.py`).
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

import structlog
import trio

from amqpd.config import Settings
from amqpd.errors import StartupError
from amqpd.tracing.tracer import SpanFact, Tracer

# So that many go together, and an idle broker does not wake for them.
GATHER_S = 0.1
# Each takes some 30 us, more with a tracestate that is new, and clients wait meanwhile: the first of the two counts.
SPANS_A_STEP = 16
STEP_S = 0.001
# How often the log may say that spans are lost.
REPORT_S = 60.0
# Of the broker's end, for an exporter that is slow: before Docker kills it, everything else has to end too.
FLUSH_S = 2.0

log = structlog.get_logger(component="otel")


class Exporter(Protocol):
    """An exporter that sends spans away, in a thread of its own."""

    exported: int
    """spans, since the start"""
    failed: int
    """spans that it could not send"""

    @property
    def reason(self) -> str:
        """The last thing that went wrong; empty: nothing did."""

    @property
    def waiting(self) -> int:
        """Spans that it was given, and has neither sent nor given up."""

    def export(self, fact: SpanFact) -> None:
        """Send it at some time. Never waits."""

    def flush_and_end(self) -> None:
        """Send what waits; it may take long."""

    def give_up(self) -> None:
        """Whatever is under way ends soon, from any thread."""


class Spans:
    """The queue of spans between the tracer and the exporter."""

    def __init__(self, exporter: Exporter, spans_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._exporter = exporter
        self._clock = clock
        self._spans_max = spans_max
        self._waiting: deque[SpanFact] = deque()
        self._news = trio.Event()
        self._tracer: Tracer | None = None
        self._reported = 0
        self._report_at = -math.inf
        self.dropped = 0

    def tracer(self, clock_us: Callable[[], int]) -> Tracer:
        """The node's."""
        self._tracer = Tracer(_span_id, clock_us, self.keep)
        return self._tracer

    def keep(self, fact: SpanFact) -> None:
        """Keep the fact until it is exported; drop it if too many wait."""
        if len(self._waiting) + self._exporter.waiting >= self._spans_max:
            self.dropped += 1
        else:
            self._waiting.append(fact)
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            # What the exporter has may fail without anything new.
            with trio.move_on_after(REPORT_S if self._exporter.waiting else math.inf):
                await self._news.wait()
                await trio.sleep(GATHER_S)
            self._news = trio.Event()
            while self._waiting:
                self._hand_over_some()
                await trio.lowlevel.checkpoint()
            self._report(trio.current_time())

    def _hand_over_some(self) -> None:
        """One at least."""
        until = self._clock() + STEP_S
        for _ in range(min(SPANS_A_STEP, len(self._waiting))):
            self._exporter.export(self._waiting.popleft())
            if self._clock() >= until:
                break

    def _report(self, now: float) -> None:
        lost = self.dropped + self._exporter.failed
        if lost > self._reported and now >= self._report_at:
            self._reported, self._report_at = lost, now + REPORT_S
            dropped, failed = self.dropped, self._exporter.failed
            log.warning("spans are lost", dropped=dropped, failed=failed, reason=self._exporter.reason)

    async def end(self, until: float = math.inf) -> None:
        """Nothing more is told. `until`: by trio's clock; what is not exported then is lost."""
        while self._waiting:
            self._hand_over_some()
        with trio.move_on_at(min(until, trio.current_time() + FLUSH_S)) as flushing:
            await trio.to_thread.run_sync(self._exporter.flush_and_end, abandon_on_cancel=True)
        if flushing.cancelled_caught:
            self._exporter.give_up()
            log.warning("spans are lost at the end", spans=self._exporter.waiting, reason=self._exporter.reason)

    def facts(self) -> dict[str, int]:
        """Counts since the start, of spans; and what waits now. `untold`: deliveries beyond the tracer's bound."""
        exporter = self._exporter
        return {
            "exported": exporter.exported,
            "failed": exporter.failed,
            "dropped": self.dropped,
            "waiting": len(self._waiting) + exporter.waiting,
            "untold": 0 if self._tracer is None else self._tracer.untold,
        }


_span_id = partial(random.randrange, 1, 1 << 64)


def spans_of(settings: Settings) -> Spans | None:
    """None: they are off. Raises StartupError."""
    if not settings.otel.enabled:
        return None
    try:
        from amqpd.process.otel import OtelExporter  # OpenTelemetry's SDK: only when it is needed
    except ModuleNotFoundError as error:
        # That is all of it: the log would say the same in other words.
        raise StartupError(
            f"otel.enabled is true and needs {error.name}, which is not installed: pip install '.[otel]' in a "
            "checkout of amqpd, or set otel.enabled to false"
        ) from None
    try:
        exporter = OtelExporter(settings.otel.endpoint, settings.otel.spans_max, settings.node_name)
    except (ValueError, RuntimeError, OSError) as error:
        raise StartupError(f"OpenTelemetry's exporter cannot start: {error}") from error
    return Spans(exporter, settings.otel.spans_max)
