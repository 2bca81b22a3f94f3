"""From the tracer to a collector: bounds, losses, the end; collectors that are away, slow or hostile."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry.trace import TraceState
from structlog.testing import capture_logs

from amqpd.config import Settings
from amqpd.errors import StartupError
from amqpd.process import otel
from amqpd.process import spans as module
from amqpd.process.otel import ANSWER_BYTES_MAX, STATE_MEMBERS_MAX, OtelExporter
from amqpd.process.spans import GATHER_S, REPORT_S, STEP_S, Spans, spans_of
from amqpd.setting_tables import OtelSettings
from amqpd.tracing.context import TraceContext
from amqpd.tracing.tracer import SpanFact
from tests.tracing.collector import Collector, answered, collecting

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
DEADLINE_S = 60.0


def fact(name: str = "publish x", span: int = 7, **others: Any) -> SpanFact:
    context = others.pop("context", TraceContext(TRACE, 5, 1, b""))
    return SpanFact(
        name, context, span, others.pop("parent_id", 5), True, 1_000, 2_000, others.pop("about", {}), **others
    )


class Kept:
    """An exporter that keeps what it is given until a test lets it go."""

    def __init__(self) -> None:
        self.facts: list[SpanFact] = []
        self.exported = self.failed = 0
        self.reason = ""
        self.ends: Callable[[], object] = lambda: None
        self.given_up = False

    @property
    def waiting(self) -> int:
        return len(self.facts) - self.exported - self.failed

    def export(self, fact: SpanFact) -> None:
        self.facts.append(fact)

    def flush_and_end(self) -> None:
        self.ends()

    def give_up(self) -> None:
        self.given_up = True


@pytest.mark.trio
async def test_what_is_told_is_handed_on_together(autojump_clock: trio.abc.Clock) -> None:
    exporter = Kept()
    spans = Spans(exporter, 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(spans.run)
        for number in range(100):
            spans.keep(fact(span=number + 1))
        await trio.sleep(GATHER_S / 2)
        assert exporter.facts == []
        await trio.sleep(GATHER_S)
        assert [each.span_id for each in exporter.facts] == list(range(1, 101))
        nursery.cancel_scope.cancel()
    assert spans.facts()["waiting"] == 100


@pytest.mark.trio
async def test_a_step_ends_with_its_time_or_its_number(autojump_clock: trio.abc.Clock) -> None:
    now, each_s, steps = 0.0, 0.0, [0]

    class Slow(Kept):
        def export(self, fact: SpanFact) -> None:
            nonlocal now
            now += each_s
            steps[-1] += 1
            super().export(fact)

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            steps.append(0)

    spans = Spans(Slow(), 1000, lambda: now)
    trio.lowlevel.add_instrument(Steps())
    for took_s, expected in ((STEP_S / 1000, [16, 16, 8]), (STEP_S / 2, [2] * 20), (STEP_S * 9, [1] * 40)):
        each_s, steps[:] = took_s, [0]
        for _ in range(40):
            spans.keep(fact())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spans.run)
            await trio.sleep(2 * GATHER_S)
            nursery.cancel_scope.cancel()
        assert [step for step in steps if step] == expected


@pytest.mark.trio
async def test_beyond_the_bound_spans_are_dropped_and_counted(autojump_clock: trio.abc.Clock) -> None:
    exporter = Kept()
    spans = Spans(exporter, 10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(spans.run)
        with capture_logs() as lines:
            for _ in range(5):
                for _ in range(6):
                    spans.keep(fact())
                await trio.sleep(2 * GATHER_S)
            assert (len(exporter.facts), spans.dropped) == (10, 20)
            assert [line["event"] for line in lines] == ["spans are lost"]
            exporter.failed = 4
            exporter.reason = "no route"
            spans.keep(fact())
            await trio.sleep(2 * GATHER_S)
            assert (len(exporter.facts), spans.dropped) == (11, 20), "there is space again"
            assert len(lines) == 1
            await trio.sleep(2 * REPORT_S)
            assert len(lines) == 2, "without anything new"
            assert (lines[1]["dropped"], lines[1]["failed"], lines[1]["reason"]) == (20, 4, "no route")
            await trio.sleep(10 * REPORT_S)
            assert len(lines) == 2
        nursery.cancel_scope.cancel()
    facts = spans.facts()
    assert (facts["dropped"], facts["failed"], facts["waiting"]) == (20, 4, 7)


@pytest.mark.trio
async def test_the_end_waits_for_the_exporter_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_S", 0.05)
    quick, stuck, let_go = Kept(), Kept(), threading.Event()
    stuck.ends = lambda: let_go.wait(DEADLINE_S)
    for exporter in (quick, stuck):
        spans = Spans(exporter, 10)
        spans.keep(fact())
        await spans.end()
        assert len(exporter.facts) == 1
    assert (quick.given_up, stuck.given_up) == (False, True)
    let_go.set()


def test_off_nothing_of_it_is_there(tmp_path: Path) -> None:
    before = threading.active_count()
    assert spans_of(Settings(data_dir=tmp_path)) is None
    assert threading.active_count() == before


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "amqpd.process.otel", None)
    with pytest.raises(StartupError, match=r"otel.enabled is true .* pip install '\.\[otel\]' in a checkout"):
        spans_of(Settings(data_dir=tmp_path, otel=OtelSettings(enabled=True)))


@pytest.mark.parametrize("endpoint", ["localhost:4318", "ftp://h", "http://", "http://h:x", "http://[::1"])
def test_an_endpoint_is_a_url(endpoint: str) -> None:
    with pytest.raises(ValueError, match="must be a URL"):
        OtelSettings(endpoint=endpoint)


# The exporter itself


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    otel._state.cache_clear()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.mark.parametrize("path", ["", "/", "/v1/traces"])
def test_a_span_as_the_collector_gets_it(collector: Collector, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
    exporter = OtelExporter(collector.url + path, 1000, "amqpd@test")
    context = TraceContext(TRACE, 5, 1, b"vendor=1,other=2")
    about = {"a": "text", "n": 3, "b": True, "names": ["q", "r"]}
    exporter.export(fact("publish x", 7, context=context, about=about))
    exporter.export(fact("ack x", 8, context=context, parent_id=7, link_id=9)._replace(serves=False, error="NO - no"))
    exporter.flush_and_end()
    first, second = collector.spans
    assert first[:8] == (
        "publish x",
        2,
        f"{TRACE:032x}",
        f"{7:016x}",
        f"{5:016x}",
        "vendor=1,other=2",
        10**6,
        2 * 10**6,
    )
    assert (first.attributes, first.links, first.status) == (about, [], (0, ""))
    assert (second.kind, second.parent, second.links) == (1, f"{7:016x}", [f"{9:016x}"])
    assert second.status == (2, "NO - no")
    assert first.resource["service.name"] == "amqpd"
    assert first.resource["service.instance.id"] == "amqpd@test"
    assert first.scope == "amqpd"
    [(got, headers)] = collector.requests
    assert (got, headers["x-key"]) == ("/v1/traces", "secret")
    assert (exporter.exported, exporter.failed, exporter.waiting) == (2, 0, 0)


def test_the_environment_says_where_and_what_it_is_called(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders-broker")
    exporter = OtelExporter("", 1000, "n")
    exporter.export(fact())
    exporter.flush_and_end()
    assert collector.spans[0].resource["service.name"] == "orders-broker"


def test_names_of_any_octets_arrive(collector: Collector) -> None:
    exporter = OtelExporter(collector.url, 1000, "n")
    hostile = b"\xff\x00'\"\n".decode("utf-8", "surrogateescape")
    exporter.export(
        fact(f"publish {hostile}", context=TraceContext(TRACE, 5, 1, b"\xff=,,=;"), about={"q": [hostile]})
    )
    exporter.flush_and_end()
    (span,) = collector.spans
    assert span.name == "publish �\x00'\"\n"
    assert span.attributes["q"] == ["�\x00'\"\n"]
    assert span.state == ""


def test_a_collector_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    with collecting() as gone:
        url = gone.url
    exporter = OtelExporter(url, 1000, "n")
    before = time.monotonic()
    for _ in range(600):
        exporter.export(fact())
    assert exporter.waiting > 0
    exporter.give_up()
    exporter.flush_and_end()
    assert (exporter.exported, exporter.failed, exporter.waiting) == (0, 600, 0)
    assert exporter.reason
    assert time.monotonic() - before < DEADLINE_S
    assert caplog.records == [], "a collector that is away would fill the log"


def test_a_client_s_tracestate_is_no_reason(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    collector.answer = refusing
    exporter = OtelExporter(collector.url, 1000, "n")
    exporter.export(fact(context=TraceContext(TRACE, 5, 1, b"a forged line")))
    assert "forged" not in exporter.reason
    exporter.flush_and_end()
    assert "400" in exporter.reason
    assert caplog.records == [], "nor is it in the log"


def test_a_tracestate_is_parsed_once_and_one_with_too_many_members_never(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[list[str]] = []
    parse = TraceState.from_header
    monkeypatch.setattr(TraceState, "from_header", lambda headers: parsed.append(headers) or parse(headers))
    exporter = OtelExporter(collector.url, 1000, "n")
    most = b",".join(b"k%d=1" % number for number in range(STATE_MEMBERS_MAX))
    for state in (most, most, most + b",more=1", b"," * STATE_MEMBERS_MAX, most):
        exporter.export(fact(context=TraceContext(TRACE, 5, 1, state)))
    exporter.flush_and_end()
    assert [span.state for span in collector.spans] == [most.decode()] * 2 + [""] * 2 + [most.decode()]
    assert parsed == [[most.decode()]]


def refusing(handler: BaseHTTPRequestHandler) -> None:
    answered(handler, 400)


def turning_away(handler: BaseHTTPRequestHandler) -> None:
    answered(handler, 503, ("retry-after", "1e300"))


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(400)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(bytes(ANSWER_BYTES_MAX))
    except OSError:
        handler.close_connection = True


def nonsense(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"SSH-2.0-no\r\n\r\n")
    handler.close_connection = True


@pytest.mark.parametrize("answer", [refusing, turning_away, endless, nonsense])
def test_a_collector_that_is_no_good(
    collector: Collector, answer: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    collector.answer = answer
    exporter = OtelExporter(collector.url, 1000, "n")
    exporter.export(fact())
    collector.wait_requests(1)
    exporter.give_up()
    exporter.flush_and_end()
    assert (exporter.exported, exporter.failed, exporter.waiting) == (0, 1, 0)
    assert caplog.records == []
    assert logging.getLogger("opentelemetry").propagate


def test_redirects_are_not_followed(collector: Collector) -> None:
    with collecting() as other:
        collector.answer = lambda handler: answered(handler, 307, ("location", other.url))
        exporter = OtelExporter(collector.url, 1000, "n")
        exporter.export(fact())
        exporter.flush_and_end()
        assert (len(collector.requests), other.requests) == (1, [])


def test_the_sdk_can_be_disabled(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    exporter = OtelExporter(collector.url, 1000, "n")
    exporter.export(fact())
    assert exporter.waiting == 0
    exporter.flush_and_end()
    assert collector.spans == []


def test_settings_of_the_sdk_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5000")
    before = threading.active_count()
    with pytest.raises(StartupError, match="OpenTelemetry's exporter cannot start: "):
        spans_of(Settings(data_dir=tmp_path, otel=OtelSettings(enabled=True)))
    assert threading.active_count() == before
