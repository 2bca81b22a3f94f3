"""SIGKILL at a random moment, again and again: nothing confirmed is lost, nothing settled comes back.

Five durable queues, a publisher at full speed to each and one to all of them, consumers on two; and beside them the
queues of `fates.py`: messages that expire, are too many, are rejected, come back too often, wait, or have a priority.
Whatever may become of a confirmed message, it comes out of one place, once. The moment is
drawn from a seed, as a number of confirms. Run it again with the seed that a failure prints:
`AMQPD_FAULT_SEED=... AMQPD_FAULT_ROUNDS=... pytest tests/faults/test_kill.py`.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pika
import pytest

from ..clients.broker_process import BrokerProcess
from .checker import check
from .drain import CLOCK, drain, look, wait_for_rest
from .fates import FATES, Fate, add_fates
from .history import History, PublisherHistory, QueueHistory
from .workload import RECEIPTS, start_workers

QUEUES = [f"durable{number}" for number in range(5)]
CONSUMED = QUEUES[:2]
ROUNDS = 1
ROUNDS_HEAVY = 20
CONFIRMS_MAX = 30_000
"""Of all publishers together, before the kill of a round; the window of 1,000 each comes on top."""
CONFIRMS_DEADLINE_S = 300.0
ROUTES = {f"to-{queue}": ("", queue) for queue in QUEUES} | {"to-all": ("everyone", "")}


def fault_seed() -> int:
    return int(os.environ.get("AMQPD_FAULT_SEED") or random.SystemRandom().randrange(2**32))


def declare_fates(broker: BrokerProcess) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(CLOCK, durable=True)
        for fate in FATES:
            channel.queue_declare(fate.queue, durable=True, arguments=fate.declared())
            if fate.dead:
                channel.queue_declare(fate.dead, durable=True)


def declare_topology(broker: BrokerProcess) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("everyone", "fanout", durable=True)
        channel.queue_declare(RECEIPTS, durable=True)
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "everyone")


def new_history() -> History:
    publishers = {queue: PublisherHistory(f"to-{queue}", (queue,)) for queue in QUEUES}
    everyone = PublisherHistory("to-all", tuple(QUEUES))
    return History(
        {publisher.name: publisher for publisher in [*publishers.values(), everyone]},
        {queue: QueueHistory(queue) for queue in QUEUES},
    )


def publish_and_kill(broker: BrokerProcess, history: History, confirms: int, fates: Sequence[Fate] = ()) -> None:
    """Everyone at full speed until that many confirms have come, then SIGKILL."""
    progress, workers = start_workers(broker.port, history, ROUTES, CONSUMED, fates)
    try:
        progress.wait(confirms, CONFIRMS_DEADLINE_S)
        assert broker.running, "it went down by itself"
    finally:
        progress.killed = True
        broker.kill()
        for worker in workers:
            worker.join(120)
            assert not worker.is_alive(), worker.name
    history.events.append(f"incarnation {history.incarnation}: SIGKILL after {confirms} confirms")
    history.incarnation += 1


def kill_while_it_starts(broker: BrokerProcess, history: History, moments: random.Random, span_s: float) -> None:
    """Start, and SIGKILL at a random moment of the time that a start takes: this sleep is the fault
    itself."""
    moment_s = moments.uniform(0, span_s)
    broker.spawn()
    time.sleep(moment_s)
    broker.kill()
    history.events.append(f"incarnation {history.incarnation}: SIGKILL {moment_s:.3f} s into the start")


def run_rounds(broker: BrokerProcess, seed: int, rounds: int) -> None:
    moments = random.Random(seed)
    history = new_history()
    history.events.append(f"seed {seed}, {rounds} rounds, {broker.product}")
    began = time.monotonic()
    broker.start()
    start_s = time.monotonic() - began
    declare_topology(broker)
    # Not RabbitMQ: it has no delayed messages of its own, and its dead letters are not confirmed.
    fates = FATES if broker.product == "amqpd" else []
    if fates:
        declare_fates(broker)
        add_fates(history)
    try:
        for number in range(rounds):
            publish_and_kill(broker, history, moments.randint(1, CONFIRMS_MAX), fates)
            if number % 2:
                kill_while_it_starts(broker, history, moments, start_s)
            broker.start()
        if fates:
            wait_for_rest(broker.port)
        drain(broker.port, history)
        # RabbitMQ 3.10 keeps no promise about acknowledgements over a crash: they may be in a buffer.
        verdict = check(history, acks_are_durable=broker.product == "amqpd")
        print(f"seed {seed}: {verdict.text()}")
        assert verdict.valid, verdict.text()
        assert broker.terminate() == 0
        broker.start()
        left = look(broker.port, list(history.queues))
        assert not any(left.values()), f"came back after the drain and a clean stop: {left}"
    except BaseException:
        print(history.text())
        print(f"Again with: AMQPD_FAULT_SEED={seed} AMQPD_FAULT_ROUNDS={rounds}")
        print(broker.log[-4000:])
        raise


def sockets(directory: str, names: list[str]) -> list[str]:
    """What a copy leaves out."""
    return [name for name in names if (Path(directory) / name).is_socket()]


def test_killed_at_full_speed(make_broker: Callable[..., BrokerProcess]) -> None:
    run_rounds(make_broker(), fault_seed(), int(os.environ.get("AMQPD_FAULT_ROUNDS") or ROUNDS))


@pytest.mark.heavy
@pytest.mark.timeout(1200)
def test_killed_at_full_speed_many_times(make_broker: Callable[..., BrokerProcess]) -> None:
    run_rounds(make_broker(), fault_seed(), int(os.environ.get("AMQPD_FAULT_ROUNDS") or ROUNDS_HEAVY))


@pytest.mark.slow
def test_a_recovery_that_was_killed_recovers_the_same(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """The data directory after a kill is copied. One copy recovers in peace, the other is killed during its
    recovery, several times; both hold the same messages in the same order, and a further kill changes
    nothing."""
    seed = fault_seed()
    moments, history = random.Random(seed), new_history()
    killed = make_broker(tmp_path / "killed")
    killed.start()
    declare_topology(killed)
    publish_and_kill(killed, history, moments.randint(1000, CONFIRMS_MAX))
    shutil.copytree(tmp_path / "killed", tmp_path / "copy", symlinks=True, ignore=sockets)

    peaceful = make_broker(tmp_path / "copy", port=killed.port)
    began = time.monotonic()
    peaceful.start()
    start_s = time.monotonic() - began
    expected = look(peaceful.port, QUEUES)
    peaceful.kill()
    for _ in range(3):
        kill_while_it_starts(killed, history, moments, start_s)
    killed.start()
    found = look(killed.port, QUEUES)
    assert found == expected, f"seed {seed}\n{history.text()}"
    assert any(found.values()), "there was nothing to compare"  # consumers may have emptied theirs

    killed.kill()
    killed.start()
    once_more = look(killed.port, QUEUES)
    for queue in QUEUES:
        before = [message[:2] for message in expected[queue]]
        assert [message[:2] for message in once_more[queue]] == before, f"seed {seed} {queue}"
