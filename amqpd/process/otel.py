"""Spans to a collector, by OpenTelemetry's SDK: OTLP over HTTP, from a thread of the SDK.

What comes in: `SpanFact`s. What goes out: spans, in batches; counts of those that went and of those that did not.
Rules: 1. Only what says that it is sampled is a span. 2. A collector that is away, slow or hostile costs the thread's
time and nothing else: no redirect is followed, no more of an answer is read than ANSWER_BYTES_MAX, and what SDK and
exporter have to say is not logged line by line but kept as `reason`. 3. Where the SDK has environment variables
(OTEL_EXPORTER_OTLP_..., OTEL_BSP_..., OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) they hold, except for what is
given.
Not here: how many may wait (`spans.py`), what a span says (`tracing/`).

Source: https://opentelemetry.io/docs/specs/otlp/, https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from amqpd import __version__
from amqpd.tracing.context import TraceContext
from amqpd.tracing.facts import SpanFact, Value

# The path of OTLP's traces (OTLP 1.5, "OTLP/HTTP Request"), added where only the collector is named.
TRACES_PATH = "/v1/traces"
# An answer is a protobuf message that says what was not taken.
ANSWER_BYTES_MAX = 64 * 1024
REASON_CHARACTERS_MAX = 300


class OtelExporter:
    """See `spans.Exporter`."""

    def __init__(self, endpoint: str, spans_max: int, node_name: str) -> None:
        """`endpoint`: a collector, or its URL for traces; empty: as the environment says. Raises ValueError and
        RuntimeError for what it cannot be."""
        self.exported = 0
        self.failed = 0
        self._handed = 0
        self._notes = _Notes()
        self._sender = OTLPSpanExporter(endpoint=_traces_url(endpoint), session=_session())
        # Not before everything that may be wrong was looked at: it has a thread.
        self._processor = BatchSpanProcessor(_Counting(self, self._sender), max_queue_size=spans_max)
        self._ids = _HandedIds()
        self._provider = TracerProvider(
            sampler=ParentBased(ALWAYS_OFF),
            resource=Resource.create(_resource(node_name)),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("amqpd", __version__)
        self._notes.begin()

    @property
    def reason(self) -> str:
        """See `spans.Exporter`."""
        return self._notes.last

    @property
    def waiting(self) -> int:
        """See `spans.Exporter`."""
        return self._handed - self.exported - self.failed

    def export(self, fact: SpanFact) -> None:
        """See `spans.Exporter`."""
        theirs, ours = _contexts(fact.context)
        parent = theirs if fact.parent_id == fact.context.span_id else ours(fact.parent_id)
        self._ids.next = fact.span_id
        span = self._tracer.start_span(
            _sendable(fact.name),
            set_span_in_context(NonRecordingSpan(parent), Context()),
            SpanKind.SERVER if fact.serves else SpanKind.INTERNAL,
            {name: _sendable_value(value) for name, value in fact.attributes.items()},
            [Link(ours(fact.link_id))] if fact.link_id else [],
            fact.start_us * 1000,
        )
        if not span.is_recording():
            return  # OTEL_SDK_DISABLED
        if fact.error:
            span.set_status(Status(StatusCode.ERROR, _sendable(fact.error)))
        self._handed += 1
        span.end(fact.end_us * 1000)

    def flush_and_end(self) -> None:
        """See `spans.Exporter`."""
        self._processor.shutdown()
        self._notes.end()

    def give_up(self) -> None:
        """See `spans.Exporter`."""
        self._sender.shutdown()


class _Counting(SpanExporter):
    """Around the one that sends: in the thread of the SDK, and only there."""

    def __init__(self, counts: OtelExporter, sender: OTLPSpanExporter) -> None:
        self._counts = counts
        self._sender = sender

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._sender.export(spans)
        finally:
            if result is SpanExportResult.SUCCESS:
                self._counts.exported += len(spans)
            else:
                self._counts.failed += len(spans)
        return result

    def shutdown(self) -> None:
        self._sender.shutdown()


class _HandedIds(RandomIdGenerator):
    """Spans know each other by ids that the core has chosen before they are made."""

    next = 0

    def generate_span_id(self) -> int:
        return self.next


class _Notes(logging.Handler):
    """What SDK and exporter log, of which the last is kept: a collector that is away would be lines for ever."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self._logger = logging.getLogger("opentelemetry")
        self._propagate = self._logger.propagate

    def begin(self) -> None:
        self._logger.addHandler(self)
        self._logger.propagate = False

    def end(self) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagate

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()[:REASON_CHARACTERS_MAX]


def _traces_url(endpoint: str) -> str | None:
    if not endpoint:
        return None
    base = endpoint.rstrip("/")
    return base if base.endswith(TRACES_PATH) else base + TRACES_PATH


def _resource(node_name: str) -> Mapping[str, str]:
    given = {SERVICE_INSTANCE_ID: node_name, SERVICE_VERSION: __version__}
    named = os.environ.get(OTEL_SERVICE_NAME) or SERVICE_NAME in os.environ.get(OTEL_RESOURCE_ATTRIBUTES, "")
    return given if named else {SERVICE_NAME: "amqpd", **given}


def _session() -> requests.Session:
    """Of an answer only the beginning is read, and only its status is used."""

    def read_some(response: requests.Response, *_: Any, **__: Any) -> None:
        response.raw.read(ANSWER_BYTES_MAX)
        response.close()

    session = requests.Session()
    session.stream = True
    session.hooks["response"].append(read_some)
    return session


def _contexts(context: TraceContext) -> tuple[SpanContext, Any]:
    """The publisher's, and a function that makes ours of the same trace."""
    flags = TraceFlags(context.flags)
    state = TraceState.from_header([context.state.decode("ascii", "replace")]) if context.state else TraceState()

    def ours(span_id: int) -> SpanContext:
        return SpanContext(context.trace_id, span_id, False, flags, state)

    return SpanContext(context.trace_id, context.span_id, True, flags, state), ours


def _sendable(text: str) -> str:
    """Clients choose names of any octets; protobuf takes UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _sendable_value(value: Value) -> Value:
    if isinstance(value, str):
        return _sendable(value)
    return [_sendable(each) for each in value] if isinstance(value, list) else value
