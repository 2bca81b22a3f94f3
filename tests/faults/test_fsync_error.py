"""fsync fails: nothing of that batch is confirmed, the node stops and says why, a restart has what it
confirmed.

After a failed fsync the kernel may have thrown the pages away and reports success the next time, so to try
again is to lie (the lesson of PostgreSQL's "fsyncgate", 2018). RabbitMQ is no model here, so these are about
amqpd.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from pamqp import commands

from tests.harness.slow import slow

from ..clients.broker_process import BrokerFailed, BrokerProcess
from ..clients.wire import Wire
from .checker import check
from .drain import drain
from .history import CONFIRMED
from .strace import FailingCalls, strace_prefix
from .test_kill import CONSUMED, ROUTES, declare_topology, new_history
from .workload import BATCH_MESSAGES, Progress, Publisher, start_workers

MakeBroker = Callable[..., BrokerProcess]
CALLS = "fsync,fdatasync"
CLEAR = re.compile(r"(I/O error|Input/output error|EIO|fsync)", re.IGNORECASE)

pytestmark = pytest.mark.usefixtures("only_amqpd")


class OneBatch(Publisher):
    """Publishes one batch, and waits for what happens to it."""

    def _batch(self, first: int) -> bytes:
        return super()._batch(first) if first == 0 else b""


def assert_it_stopped_and_said_why(broker: BrokerProcess) -> None:
    assert broker.wait() not in (0, -9, -15), broker.log[-3000:]
    assert CLEAR.search(broker.log), f"the log does not name the reason:\n{broker.log[-3000:]}"
    assert "Traceback" not in broker.log, f"a sentence, not a traceback:\n{broker.log[-3000:]}"


@pytest.mark.parametrize("calls", [CALLS, slow("fdatasync")])
def test_a_batch_whose_fsync_fails_is_not_confirmed(make_broker: MakeBroker, calls: str) -> None:
    broker, history = make_broker(), new_history()
    broker.start()
    declare_topology(broker)
    with FailingCalls(broker.broker_pid, calls, "error=EIO") as failing:
        progress = Progress(killed=True)  # the connection is going to break, that is no violation
        publisher = OneBatch(broker.port, progress, history.publishers["to-durable0"], "", "durable0")
        publisher.start()
        assert_it_stopped_and_said_why(broker)
        publisher.join(120)
        assert failing.injected, "no call failed: this was not tested"
    outcomes = history.publishers["to-durable0"].outcomes[:BATCH_MESSAGES]
    confirmed = [sequence for sequence, outcome in enumerate(outcomes) if outcome == CONFIRMED]
    # What found no queue needs no disk, and may be confirmed.
    assert set(confirmed) <= history.publishers["to-durable0"].unroutable
    broker.start()
    with Wire(broker.port) as wire:
        wire.open()
        wire.open_channel()
        assert isinstance(
            wire.call(commands.Queue.Declare(queue="durable0", passive=True), channel=1),
            commands.Queue.DeclareOk,
        )


def test_at_full_speed_nothing_confirmed_is_lost(make_broker: MakeBroker) -> None:
    broker, history = make_broker(), new_history()
    broker.start()
    declare_topology(broker)
    progress, workers = start_workers(broker.port, history, ROUTES, CONSUMED)
    progress.wait(3000)
    progress.killed = True
    with FailingCalls(broker.broker_pid, CALLS, "error=EIO") as failing:
        assert_it_stopped_and_said_why(broker)
        assert failing.injected, "no call failed: this was not tested"
    for worker in workers:
        worker.join(120)
    history.incarnation += 1
    broker.start()
    drain(broker.port, history)
    verdict = check(history)
    print(verdict.text())
    assert verdict.valid, f"{verdict.text()}\n{history.text()}"


@pytest.mark.slow
def test_a_disk_that_fails_from_the_start_is_no_start(make_broker: MakeBroker) -> None:
    broker = make_broker(prefix=strace_prefix(CALLS, "error=EIO"))
    with pytest.raises(BrokerFailed, match=r"exit code [1-9]"):
        broker.start()
    assert CLEAR.search(broker.log), broker.log
    broker.prefix = []
    broker.start()
    declare_topology(broker)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["journal.db", slow("metadata.db")])
def test_a_disk_that_cannot_be_read_is_not_called_damaged(make_broker: MakeBroker, file: str) -> None:
    """SQLite says of a page that it could not read that the database is malformed."""
    broker = make_broker()
    broker.start()
    declare_topology(broker)
    broker.terminate()
    path = broker.data_dir / file
    before = path.read_bytes()
    broker.prefix = [*strace_prefix("pread64", "EIO:when=8+"), "-P", str(path)]
    start = len(broker.log)
    with pytest.raises(BrokerFailed, match=r"exit code 1"):
        broker.start()
    assert f"the disk of {path} failed" in broker.log[start:]
    assert "damaged" not in broker.log[start:]
    assert "Traceback" not in broker.log[start:]
    assert path.read_bytes() == before
