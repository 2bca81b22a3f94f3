"""Spans to a collector, by OpenTelemetry's SDK: OTLP over HTTP, from a thread of the SDK.

What comes in: `SpanFact`s. What goes out: spans, in batches; counts of those that went and of those that did not.
Rules: 1. The SDK's tracer has no part in it: it chooses ids and samples, which is done by then, and takes more than
twice as long for a span, in the thread that messages go through. 2. A collector that is away, slow or hostile costs
the SDK's thread time and nothing else: no redirect is followed, no more of an answer is read than ANSWER_BYTES_MAX,
and what SDK and exporter have to say is not logged line by line but kept as `reason`. What the API says of a
client's tracestate is neither: it has the client's text. 3. Where the SDK has
environment variables (OTEL_EXPORTER_OTLP_..., OTEL_BSP_..., OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES,
OTEL_SDK_DISABLED) they hold, except for what is given.
Not here: how many may wait (`spans.py`), what a span says (`tracing/`).

Source: https://opentelemetry.io/docs/specs/otlp/ and
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/;
https://www.w3.org/TR/trace-context/ section 3.3.1.1 (members of a tracestate).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_RESOURCE_ATTRIBUTES, OTEL_SDK_DISABLED, OTEL_SERVICE_NAME
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from amqpd import __version__
from amqpd.tracing.tracer import SpanFact, Value

# The path of OTLP's traces (OTLP 1.5, "OTLP/HTTP Request"), added where only the collector is named.
TRACES_PATH = "/v1/traces"
# An answer is a protobuf message that says what was not taken.
ANSWER_BYTES_MAX = 64 * 1024
REASON_CHARACTERS_MAX = 300
# Those that speak of the collector.
REASON_LOGGERS = ("opentelemetry.sdk.", "opentelemetry.exporter.")
# Of a tracestate, empty ones included.
STATE_MEMBERS_MAX = 32
# A message has four or five spans, some of them later. Half a kilobyte each as it came, a few kilobytes when parsed.
STATES_KEPT = 64

_NO_STATE, _NO_ERROR = TraceState(), Status()


class OtelExporter:
    """An exporter of spans to an OpenTelemetry collector; it has the methods of `spans.Exporter`."""

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
        self._resource = Resource.create(_resource(node_name))
        self._scope = InstrumentationScope("amqpd", __version__)
        self._disabled = os.environ.get(OTEL_SDK_DISABLED, "").strip().lower() == "true"
        self._notes.begin()

    @property
    def reason(self) -> str:
        return self._notes.last

    @property
    def waiting(self) -> int:
        return self._handed - self.exported - self.failed

    def export(self, fact: SpanFact) -> None:
        if self._disabled:
            return
        trace_id, publisher_id, flags, state = fact.context
        about = TraceFlags(flags), _state(state)
        span = ReadableSpan(
            _sendable(fact.name),
            SpanContext(trace_id, fact.span_id, False, *about),
            SpanContext(trace_id, fact.parent_id, fact.parent_id == publisher_id, *about),
            self._resource,
            {name: _sendable_value(value) for name, value in fact.attributes.items()},
            links=[Link(SpanContext(trace_id, fact.link_id, False, *about))] if fact.link_id else [],
            kind=SpanKind.SERVER if fact.serves else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, _sendable(fact.error)) if fact.error else _NO_ERROR,
            start_time=fact.start_us * 1000,
            end_time=fact.end_us * 1000,
            instrumentation_scope=self._scope,
        )
        self._handed += 1
        self._processor.on_end(span)

    def flush_and_end(self) -> None:
        self._processor.shutdown()
        self._notes.end()

    def give_up(self) -> None:
        self._sender.shutdown()


class _Counting(SpanExporter):
    """An exporter around the one that sends, which counts spans: in the thread of the SDK, and only there."""

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


class _Notes(logging.Handler):
    """The last line that SDK and exporter logged: a collector that is away would be lines for ever."""

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
        if record.name.startswith(REASON_LOGGERS):
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


@lru_cache(STATES_KEPT)
def _state(header: bytes) -> TraceState:
    """Kept, because to parse one takes ten times as long as all else of a span."""
    if not header or header.count(b",") >= STATE_MEMBERS_MAX:
        return _NO_STATE
    return TraceState.from_header([header.decode("ascii", "replace")])


def _sendable(text: str) -> str:
    """Clients choose names of any octets; protobuf takes UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _sendable_value(value: Value) -> Value:
    if isinstance(value, str):
        return _sendable(value)
    return [_sendable(each) for each in value] if isinstance(value, list) else value
