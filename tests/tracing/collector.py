"""A collector: OTLP over HTTP as opentelemetry-proto decodes it, and ways for it to behave badly.

What comes in: requests of an exporter. What goes out: spans, as they were sent; `wait_for` them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

DEADLINE_S = 60.0


class Span(NamedTuple):
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    state: str
    start_ns: int
    end_ns: int
    links: list[str]
    attributes: dict[str, Any]
    status: tuple[int, str]
    resource: dict[str, Any]
    scope: str


class Collector:
    """`answers` says what a request is answered with: by default 200."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.answer: Callable[[BaseHTTPRequestHandler], None] = answered
        self._news = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector._received(self.path, dict(self.headers), body)
                collector.answer(self)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _received(self, path: str, headers: dict[str, str], body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._news:
            self.requests.append((path, headers))
            for resource in request.resource_spans:
                about = attributes(resource.resource.attributes)
                for scope in resource.scope_spans:
                    self.spans += [span_of(each, about, scope.scope.name) for each in scope.spans]
            self._news.notify_all()

    def wait_for(self, *names: str) -> list[Span]:
        """The spans with these names, one each, as soon as they are there."""

        def found() -> bool:
            return all(any(span.name == name for span in self.spans) for name in names)

        with self._news:
            assert self._news.wait_for(found, DEADLINE_S), f"only {[span.name for span in self.spans]} came"
            return [next(span for span in self.spans if span.name == name) for name in names]

    def wait_requests(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self.requests) >= count, DEADLINE_S)


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    collector.start()
    try:
        yield collector
    finally:
        collector.close()


def answered(handler: BaseHTTPRequestHandler, status: int = 200, *headers: tuple[str, str]) -> None:
    handler.send_response(status)
    for name, value in headers:
        handler.send_header(name, value)
    handler.send_header("content-length", "0")
    handler.end_headers()


def attributes(entries: Any) -> dict[str, Any]:
    return {entry.key: value_of(entry.value) for entry in entries}


def value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [value_of(each) for each in found.values] if kind == "array_value" else found


def span_of(span: Any, resource: dict[str, Any], scope: str) -> Span:
    return Span(
        *(span.name, span.kind, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()),
        *(span.trace_state, span.start_time_unix_nano, span.end_time_unix_nano),
        [link.span_id.hex() for link in span.links],
        attributes(span.attributes),
        (span.status.code, span.status.message),
        resource,
        scope,
    )
