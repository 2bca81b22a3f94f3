"""Traces of pika's messages in a real collector: a broker of its own process, from settings to spans."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from amqpd.__main__ import run
from tests.harness.slow import slow
from tests.tracing.collector import Collector, answered, collecting

from .broker_process import PYTHON, BrokerProcess, free_port

TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736
# W3C's flag of what is sampled.
SAMPLED = "01"


def headers(span: int, flags: str = SAMPLED, **more: Any) -> dict[str, Any]:
    return {"traceparent": f"00-{TRACE:032x}-{span:016x}-{flags}", "tracestate": "shop=7", **more}


def environment(url: str, **more: str) -> dict[str, str]:
    return {"AMQPD_OTEL_ENABLED": "true", "AMQPD_OTEL_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "50", **more}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def broker(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("traced") / "data", environment=environment(collector.url))
    try:
        broker.start()
        yield broker
        assert "Traceback" not in broker.log
    finally:
        broker.close()


@pytest.fixture
def channel(broker: BrokerProcess) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    yield connection.channel()
    with contextlib.suppress(pika.exceptions.AMQPConnectionError):  # the broker may have ended
        connection.close()


def publish(channel: BlockingChannel, span: int, body: bytes = b"x", flags: str = SAMPLED, **properties: Any) -> None:
    properties.setdefault("headers", headers(span, flags))
    channel.basic_publish("shop", "order.new", body, pika.BasicProperties(**properties))


def routed(channel: BlockingChannel) -> None:
    channel.exchange_declare("shop", "topic", durable=True)
    channel.queue_declare("orders", durable=True)
    channel.queue_bind("orders", "shop", "order.*")
    channel.confirm_delivery()


def test_the_way_of_a_message_is_one_trace(collector: Collector, channel: BlockingChannel) -> None:
    routed(channel)
    publish(channel, 1, b"four", message_id="m-1", delivery_mode=2)
    method, properties, body = next(channel.consume("orders"))
    assert method is not None
    assert properties is not None
    assert (body, properties.headers) == (b"four", headers(1)), "as it came"
    channel.basic_ack(method.delivery_tag)
    publish_, route, deliver, ack = collector.wait_for("publish shop", "route", "deliver orders", "ack orders")
    assert {span.trace for span in collector.spans} == {f"{TRACE:032x}"}
    assert {span.state for span in collector.spans} == {"shop=7"}
    assert publish_.parent == deliver.parent == f"{1:016x}"
    assert (route.parent, ack.parent, deliver.links) == (publish_.id, deliver.id, [publish_.id])
    assert publish_.start_ns <= route.end_ns <= publish_.end_ns <= deliver.start_ns <= deliver.end_ns <= ack.end_ns
    assert publish_.attributes["messaging.message.id"] == "m-1"
    assert ack.attributes["messaging.rabbitmq.message.delivery_tag"] == method.delivery_tag
    for span in collector.spans:
        assert span.attributes["messaging.system"] == "rabbitmq"
        assert span.attributes["messaging.rabbitmq.destination.routing_key"] == "order.new"
        assert re.search(r"127.0.0.1:\d+ -> 127.0.0.1:\d+", str(span.attributes["messaging.client.id"]))
        assert span.resource["service.name"] == "amqpd"
    assert len(collector.spans) == 4


def test_what_is_not_sampled_or_malformed_is_not_there(collector: Collector, channel: BlockingChannel) -> None:
    routed(channel)
    publish(channel, 2, flags="00")
    publish(channel, 0)
    publish(channel, 3, headers={"traceparent": 3})
    publish(channel, 4, headers=None)
    publish(channel, 5)
    collector.wait_for("publish shop")
    assert [span.parent for span in collector.spans if span.name == "publish shop"] == [f"{5:016x}"]
    for expected in (headers(2, "00"), headers(0), {"traceparent": 3}, None, headers(5)):
        _, properties, _ = channel.basic_get("orders", auto_ack=True)
        assert properties is not None
        assert properties.headers == expected
    collector.wait_for("get orders")
    assert {span.parent for span in collector.spans if span.name == "get orders"} == {f"{5:016x}"}


@pytest.mark.slow
def test_at_the_end_spans_are_flushed(collector: Collector, broker: BrokerProcess, channel: BlockingChannel) -> None:
    routed(channel)
    channel.queue_purge("orders")
    publish(channel, 6)
    method, _, _ = next(channel.consume("orders"))
    assert method is not None
    assert broker.terminate() == 0
    # The consumer had it, and its channel ended with the broker.
    (requeue,) = collector.wait_for("requeue orders")
    assert requeue.attributes["amqpd.outcome"] == "requeued"


@pytest.mark.slow
def test_status_and_metrics_count_spans(
    collector: Collector, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    web = {"AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(port), "AMQPD_HTTP_METRICS_OPEN": "true"}
    broker = BrokerProcess(tmp_path / "data", environment=environment(collector.url, **web))
    try:
        broker.start()
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            routed(channel)
            publish(channel, 1)
        collector.wait_for("route", "publish shop")
        assert run(["status", "--json", "--data-dir", str(tmp_path / "data")]) == 0
        spans = json.loads(capsys.readouterr().out)["spans"]
        # What has come may not be counted yet.
        assert spans["exported"] + spans["waiting"] == 2
        assert (spans["failed"], spans["dropped"], spans["untold"]) == (0, 0, 0)
        assert run(["status", "--data-dir", str(tmp_path / "data")]) == 0
        assert re.search(r"spans +(exported|waiting) 2", capsys.readouterr().out)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = dict(re.findall(r"(?m)^(amqpd_spans_[a-z_]+) (\d+)", text))
        assert set(found) == {f"amqpd_spans_{name}_total" for name in ("exported", "failed", "dropped", "untold")} | {
            "amqpd_spans_waiting"
        }
        assert broker.terminate() == 0
    finally:
        broker.close()


@pytest.mark.slow
def test_a_collector_that_hangs_holds_up_nobody(collector: Collector, tmp_path: Any) -> None:
    """Not messages, not the end, and the log has a line."""

    def hanging(handler: Any) -> None:
        handler.rfile.read(1)  # until the exporter hangs up

    collector.answer = hanging
    small = environment(collector.url, AMQPD_OTEL_SPANS_MAX="512")
    broker = BrokerProcess(tmp_path / "data", environment=small)
    try:
        broker.start()
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            routed(channel)
            for span in range(1, 500):
                publish(channel, span)
            collector.wait_requests(1)
            assert channel.queue_declare("orders", passive=True).method.message_count == 499
        line = broker.wait_log("spans are lost")
        assert "dropped=" in line
        assert broker.terminate() == 0
        assert broker.log.count("spans are lost") <= 2, "one line, and one at the end"
        assert "urllib3" not in broker.log
    finally:
        collector.answer = answered
        broker.close()


@pytest.mark.parametrize("on", [slow(False), True])
def test_the_sdk_and_its_thread_are_there_only_when_it_is_on(collector: Collector, tmp_path: Any, on: bool) -> None:
    given = environment(collector.url, AMQPD_OTEL_ENABLED=str(on).lower())
    broker = BrokerProcess(tmp_path / "data", environment=given)
    try:
        broker.start()
        # Its protobuf is a shared library; names of threads are not to be seen from outside.
        loaded = Path(f"/proc/{broker.broker_pid}/maps").read_text()
        assert ("google/_upb" in loaded) is on
        assert broker.terminate() == 0
    finally:
        broker.close()


def test_without_the_extra_it_ends_in_one_sentence(tmp_path: Any) -> None:
    program = "import sys; sys.modules['opentelemetry.sdk'] = None; from amqpd.__main__ import main; main()"
    command = [PYTHON[0], "-c", program, "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    surrounding = BrokerProcess(tmp_path / "data", environment=environment("http://127.0.0.1:1")).child_environment()
    ended = subprocess.run(command, env=surrounding, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.fullmatch(r"amqpd: otel.enabled is true .*pip install '\.\[otel\]' in a checkout.*\n", ended.stderr)
    assert not (tmp_path / "data").exists()
