"""What is written before anything is sent, and what may wait for the end of the pump's turn."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
import trio
from pamqp import commands

from amqpd.audit.kinds import ROUTED
from amqpd.audit.spool import BLOCK, RECORD
from tests.audit.recorded import RecordedHarness
from tests.cost.loads import BY_NAME, Load
from tests.cost.rig import Rig, StillClock, serve
from tests.harness.harness import Client

PERSISTENT = {"delivery_mode": 2}


def urgent(harness: RecordedHarness) -> bool:
    """Whether something that was recorded since the last time is, and something was."""
    buffer = harness.recorder.buffer
    assert buffer.pending
    found = buffer.urgent
    harness.log_rows()
    assert not buffer.urgent
    return found


@pytest.fixture
def queue(harness: RecordedHarness, client: Client) -> str:
    client.declare("q", durable=True)
    assert urgent(harness), "acts are"
    return "q"


def test_what_nobody_may_rely_on_waits(harness: RecordedHarness, client: Client, queue: str) -> None:
    client.publish(b"x", queue)
    assert not urgent(harness)
    client.send(commands.Basic.Get(queue=queue, no_ack=False))
    assert not urgent(harness)
    client.send(commands.Basic.Ack(delivery_tag=1))
    assert not urgent(harness)


def test_what_may_be_in_the_next_commit_does_not_wait(harness: RecordedHarness, client: Client, queue: str) -> None:
    client.publish(b"x", queue, **PERSISTENT)
    assert urgent(harness)
    client.send(commands.Basic.Get(queue=queue, no_ack=False))
    assert urgent(harness)
    client.send(commands.Basic.Ack(delivery_tag=1))
    assert urgent(harness)


def test_a_confirm_does_not_wait_and_neither_does_what_follows(
    harness: RecordedHarness, client: Client, queue: str
) -> None:
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish(b"x", queue)
    assert urgent(harness)
    client.send(commands.Basic.Get(queue=queue, no_ack=True))
    assert urgent(harness)


def test_messages_of_a_transaction_do_not_wait(harness: RecordedHarness, client: Client, queue: str) -> None:
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    client.publish(b"x", queue)
    client.call(commands.Tx.Commit(), commands.Tx.CommitOk)
    harness.log_rows()
    client.send(commands.Basic.Get(queue=queue, no_ack=False))
    assert urgent(harness)


def test_what_stood_there_when_recording_began_does_not_wait(client: Client, harness: RecordedHarness) -> None:
    client.declare("q")
    harness.policy(audit="off")
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish(b"x", "q")
    harness.policy(audit="full")
    assert urgent(harness)
    client.send(commands.Basic.Get(queue="q", no_ack=True))
    assert urgent(harness)


def test_what_survived_a_restart_does_not_wait(harness: RecordedHarness, client: Client, queue: str) -> None:
    client.publish(b"x", queue, **PERSISTENT)
    harness.restart()
    assert urgent(harness), "anchors are"
    harness.client().send(commands.Basic.Get(queue=queue, no_ack=False))
    assert urgent(harness)


def test_a_large_turn_is_written_in_parts(harness: RecordedHarness, client: Client, queue: str) -> None:
    for number in range(300):
        client.publish(bytes(number), queue)
    assert urgent(harness)


def test_each_tick_of_a_turn_has_its_own_time(tmp_path: Path) -> None:
    """Though nothing was written in between."""
    times: list[list[int]] = []

    async def main() -> None:
        rig = Rig(tmp_path)
        load = Load(rig, BY_NAME["stream-full"])
        recorder, seconds = rig.node.audit, count(1)
        recorder._clock_us = lambda: next(seconds) * 1_000_000

        def record() -> None:
            block = recorder.buffer.take()
            _, size, *_ = BLOCK.unpack_from(block)
            found = RECORD.iter_unpack(block[BLOCK.size : BLOCK.size + size])
            times.append([record[0] for record in found if record[9] == ROUTED])
            recorder.later()

        rig.pump._record = record
        await serve(rig, lambda: load.run(2_000))
        load.close()
        rig.close()

    trio.run(main, clock=StillClock())
    assert max(map(len, times)) > 1, "a turn has several ticks"
    every = [time for turn in times for time in turn]
    assert len(set(every)) == len(every)


def test_the_end_of_a_turn_leaves_nothing(tmp_path: Path) -> None:
    """Transient messages without confirms: ticks write nothing, and a pump that waits for more has written all."""
    written: list[bool] = []

    async def main() -> None:
        rig = Rig(tmp_path)
        load = Load(rig, BY_NAME["stream-full"])
        buffer, write = rig.node.audit.buffer, rig.pump._record

        def record() -> None:
            written.append(buffer.urgent)
            write()

        rig.pump._record = record

        async def work() -> None:
            await load.run(400)

        await serve(rig, work)
        assert not buffer.pending
        load.close()
        rig.close()

    trio.run(main, clock=StillClock())
    assert written
    assert not any(written)
