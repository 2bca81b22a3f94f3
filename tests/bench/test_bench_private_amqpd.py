"""A private amqpd: which kernel runs, TLS, and a restart with messages on its disk."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.brokers import Broker, PrivateAmqpd
from bench.brokers.private_amqpd import kernel_of
from bench.errors import BenchError
from bench.runner import run_all, why_passed_over
from bench.scenarios import SCENARIOS, Figure, Result, Scenario, Setting


def test_the_kernel_is_told() -> None:
    assert kernel_of("amqpd 0.1.0 (kernel: python)") == "python"
    assert kernel_of("0.1.0 (kernel: cython, modules: mypyc)") == "cython"
    assert kernel_of("3.10.8") == ""


def test_a_kernel_that_does_not_run_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = PrivateAmqpd(str(tmp_path), kernel="cython")
    monkeypatch.setattr(broker, "_version_text", lambda: "amqpd 0.1.0 (kernel: python)")
    with pytest.raises(BenchError, match="the cython kernel was asked for, but this is amqpd"):
        broker.__enter__()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_tls_and_restart_on_a_private_amqpd(tmp_path: Path) -> None:
    """The whole course on one private broker: TLS, the kernel that was asked for, SIGTERM and back."""
    with PrivateAmqpd(str(tmp_path), tls=True) as broker:
        assert kernel_of(broker.version)
        outcomes = run_all(
            [broker],
            [SCENARIOS["tls-stream"], SCENARIOS["restart"]],
            rounds=1,
            seconds=0.3,
            warmup_s=0.1,
            scale=0.01,
            progress=lambda text: None,
        )
        given = _run_by_address(broker)
    streamed, restarted = (outcome.result for outcome in outcomes)
    assert streamed is not None, outcomes[0].error
    assert streamed.counts["tls"].startswith("TLSv1.")
    assert restarted is not None, outcomes[1].error
    assert restarted.counts["received"] == 5_000
    figures = {figure.name: figure.value for figure in restarted.figures}
    assert 0 < figures["accepts"] <= figures["first"] <= figures["all"]
    assert list(tmp_path.iterdir()) == []
    assert given.returncode == 0, given.stderr
    assert given.stderr.count("passed over: no amqps address is known") == 1
    assert "tls-stream  rate    both" in given.stdout


def _run_by_address(broker: Broker) -> subprocess.CompletedProcess[str]:
    """The same broker under two names, of which one has no amqps address."""
    command = [sys.executable, "-m", "bench", "tls-stream", "--rounds", "1", "--seconds", "0.2", "--warmup", "0.1"]
    command += ["--url", f"both={broker.url}", "--tls-url", f"both={broker.tls_url}", "--url", f"plain={broker.url}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_brokers_that_cannot_are_passed_over() -> None:
    given = Broker("other", "amqp://localhost/", product="rabbitmq")
    assert "amqps" in why_passed_over(SCENARIOS["tls-stream"], given)
    assert "private" in why_passed_over(SCENARIOS["restart"], given)
    assert "amqpd" in why_passed_over(SCENARIOS["ttl-million"], given)
    assert why_passed_over(SCENARIOS["stream"], given) == ""
    assert why_passed_over(SCENARIOS["tls-stream"], Broker("b", "amqp://b/", tls_url="amqps://b/")) == ""


@pytest.mark.slow
def test_fresh_runs_have_a_process_each(tmp_path: Path) -> None:
    """What is measured is never the broker that is there, unless it is not ours to start."""
    seen: list[int | None] = []

    def run(setting: Setting) -> Result:
        seen.append(setting.pid)
        return Result([Figure("rate", 1.0, "msg/s")], {}, 1.0)

    scenario = Scenario("one", "notes which process it was run on", run)
    with PrivateAmqpd(str(tmp_path)) as broker:
        given = replace(broker, name="given", again=None)
        outcomes = run_all(
            [broker, given],
            [scenario],
            rounds=2,
            seconds=0.1,
            warmup_s=0.1,
            fresh=True,
            progress=lambda text: None,
        )
    assert [outcome.error for outcome in outcomes] == [""] * 4
    first, of_given, again, second = seen
    assert of_given == again == broker.pid
    assert len({first, second, broker.pid}) == 3
    assert list(tmp_path.iterdir()) == []
