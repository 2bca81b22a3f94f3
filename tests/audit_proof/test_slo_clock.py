"""The percentiles of `slo` beside those that the load generator measured itself, on the same run.

The disk is made slow (strace delays each fdatasync), and the consumer holds what it gets: durations of some tens of
milliseconds and more, so that what differs by nature is little of them: the way through the sockets, and once in a
while a commit that the broker waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.faults.strace import require_strace
from tests.faults.test_audit_kill import FULL, events_of

from . import clock, jobs

MESSAGES = 8_000
SYNC_DELAY = "25ms"
PERCENTILES = {"p50_ms": 50, "p90_ms": 90, "p95_ms": 95, "p99_ms": 99}
SHARE_MAX = 0.05


@pytest.fixture(autouse=True)
def _only_amqpd(only_amqpd: None) -> None: ...


def test_percentiles_are_those_of_the_load_generator(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    require_strace()
    # Without a filter strace stops the broker at each of its calls: 8 ms of the 99th percentile were that.
    slow = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"]
    slow += ["-e", f"inject=fdatasync:delay_enter={SYNC_DELAY}"]
    broker = make_broker(environment=FULL, prefix=slow)
    broker.start()
    times = clock.run(broker.port, MESSAGES)
    assert broker.terminate() == 0
    jobs.run("slo", "--input", events_of(broker), "--output", tmp_path / "slo")
    logged = {
        row["measure"]: row for row in jobs.table(tmp_path / "slo" / "latency_total") if row["scope"] == "vhost"
    }
    differences = {}
    for measure, durations in times.durations().items():
        assert logged[measure]["count"] == len(durations) == MESSAGES
        for name, percent in PERCENTILES.items():
            own = float(np.percentile(durations, percent)) / 1000
            differences[measure, name] = logged[measure][name] / own - 1
            print(f"{measure:<20}{name:<8} own {own:9.3f}  slo {logged[measure][name]:9.3f}  "
                  f"{differences[measure, name]:+.2%}")  # fmt: skip
    assert all(abs(difference) <= SHARE_MAX for difference in differences.values()), differences
