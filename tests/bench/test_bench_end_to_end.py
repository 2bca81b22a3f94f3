"""Every scenario, short, against a broker of the tests' own, or the one that AMQPD_TEST_URL names."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.errors import BenchError
from bench.scenarios import SCENARIOS, Setting
from bench.wire import Address, Wire
from tests.harness.slow import slow_but

# The others need a broker of the bench's own: test_bench_private_amqpd.
QUICK = [name for name, each in SCENARIOS.items() if not (each.needs_fresh or each.restarts or each.needs_tls)]
# One of each kind: `make test` runs these, and `make test-heavy` the others.
FEW = "stream durable-confirm quorum-confirm closed-1 durable-paced-1k fanout-10 many-queues mixed-ack churn"


@pytest.mark.parametrize("name", slow_but([*FEW.split(), "backlog", "declare-1000"], QUICK))
def test_scenario_runs_and_its_counts_hold(name, broker_url):
    result = SCENARIOS[name].run(Setting(broker_url, None, warmup_s=0.1, seconds=0.3, scale=0.02))
    assert all(figure.value > 0 for figure in result.figures if figure.compared)
    assert result.counts["published"] > 0


def test_command_line(tmp_path, broker_url):
    file = tmp_path / "out.json"
    command = [
        sys.executable,
        "-m",
        "bench",
        "stream",
        "closed-1",
        "--url",
        f"one={broker_url}",
        "--url",
        f"two={broker_url}",
    ]
    command += [
        "--rounds",
        "1",
        "--seconds",
        "0.3",
        "--warmup",
        "0.1",
        "--json",
        str(file),
        "--baseline",
        "one",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "closed-1" in done.stdout
    assert "[4/4]" in done.stderr
    value = json.loads(file.read_text())
    assert [(o["scenario"], o["broker"]) for o in value["outcomes"]] == [
        ("stream", "one"),
        ("stream", "two"),
        ("closed-1", "one"),
        ("closed-1", "two"),
    ]


def test_wrong_password_is_told(broker_url):
    address = Address.parse(broker_url)
    wrong = f"amqp://guest:wrong@{address.host}:{address.port}/"
    with pytest.raises(BenchError, match=r"ACCESS_REFUSED|closed the connection"):
        Wire(wrong)


def test_an_address_that_nobody_serves(tmp_path):
    command = [sys.executable, "-m", "bench", "stream", "--url", "none=amqp://127.0.0.1:1/"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "Connection refused" in done.stderr


def test_addresses():
    assert Address.parse("amqp://localhost") == Address("localhost", 5672, "guest", "guest", "/")
    assert Address.parse("amqp://u:p%40@h:1/a%2Fb") == Address("h", 1, "u", "p@", "a/b")
    with pytest.raises(ValueError, match="not an amqp"):
        Address.parse("http://localhost")
