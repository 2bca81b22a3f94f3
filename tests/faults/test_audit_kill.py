"""SIGKILL with every message in the audit log: what a client saw is there, and the books add up.

The load of `test_kill.py`: persistent messages that are acknowledged, requeued, rejected, expire, are too many, come
back too often, are delayed, ranked by priority; consumers and publishers at full speed; beside it what may be lost,
transient and without confirms; a kill at a moment drawn from a seed.
`AMQPD_FAULT_SEED=... AMQPD_FAULT_ROUNDS=... pytest tests/faults/test_audit_kill.py` repeats one.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ..audit.reading import finish_spool
from ..clients.broker_process import REPOSITORY, BrokerProcess
from .audit_books import Books, Rounds, missing_from
from .checker import check
from .drain import drain, wait_for_rest
from .fates import FATES, add_fates
from .history import History
from .test_kill import (
    CONFIRMS_MAX,
    ROUNDS_HEAVY,
    ROUTES,
    declare_fates,
    declare_topology,
    fault_seed,
    new_history,
    publish_and_kill,
)
from .unpromised import QUEUES as UNPROMISED
from .unpromised import unpromised

FULL = {"AMQPD_AUDIT_LEVEL": "full"}
ALL_ROUTES = ROUTES | {fate.publisher: ("", fate.queue) for fate in FATES}


@pytest.fixture(autouse=True)
def _only_amqpd(only_amqpd: None) -> None:
    """Nobody else has such a log."""


def run_rounds(broker: BrokerProcess, seed: int, rounds: int, confirms_max: int, confirms_min: int = 1) -> History:
    """Kill the broker so often, drain it, end it in order, and hold its log to what the clients saw."""
    moments, history, incarnations = random.Random(seed), new_history(), Rounds(broker.data_dir)
    history.events.append(f"seed {seed}, {rounds} rounds")
    broker.start()
    declare_topology(broker)
    declare_fates(broker)
    add_fates(history)
    try:
        for _ in range(rounds):
            incarnations.begin(history)
            with unpromised(broker.port):
                publish_and_kill(broker, history, moments.randint(confirms_min, confirms_max), FATES)
            broker.start()
        wait_for_rest(broker.port)
        drain(broker.port, history)
        verdict = check(history)
        print(f"seed {seed}: {verdict.text()}")
        assert verdict.valid, verdict.text()
        assert broker.terminate() == 0
        books = Books(events_of(broker))
        print(f"{len(books.routed):,} messages in the log")
        assert books.routed
        assert all(any(queue == name for _, queue in books.delivered) for name in UNPROMISED)
        assert missing_from(books, history, incarnations, ALL_ROUTES) == []
    except BaseException:
        print(f"Again with: AMQPD_FAULT_SEED={seed} AMQPD_FAULT_ROUNDS={rounds}")
        print(broker.log[-4000:])
        raise
    return history


def events_of(broker: BrokerProcess) -> Path:
    """Of one that has ended, with what its end left in the spool."""
    if not broker.running:
        finish_spool(broker.data_dir / "audit")
    return broker.data_dir / "audit" / "events"


def conservation(events: Path, output: Path) -> subprocess.CompletedProcess[str]:
    """The job, as an operator runs it."""
    command = [sys.executable, "-m", "amqpd_spark", "conservation", "--input", str(events), "--output", str(output)]
    command += ["--master", "local[2]", "--memory", "3g"]
    environment = os.environ | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'spark'}"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800, check=False)


@pytest.mark.slow
def test_what_clients_saw_is_in_the_log_though_it_was_killed(make_broker: Callable[..., BrokerProcess]) -> None:
    run_rounds(make_broker(environment=FULL), fault_seed(), int(os.environ.get("AMQPD_FAULT_ROUNDS") or 2), 3_000)


@pytest.mark.heavy
@pytest.mark.timeout(3600)
def test_the_books_add_up_after_many_kills(make_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = make_broker(environment=FULL)
    rounds = int(os.environ.get("AMQPD_FAULT_ROUNDS") or ROUNDS_HEAVY)
    run_rounds(broker, fault_seed(), rounds, CONFIRMS_MAX)
    done = conservation(events_of(broker), tmp_path / "tables")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
