"""What a message of a quorum queue costs does not depend on how many queues there are.

What is verified: Python calls, calls of builtins and opcodes, from the bytes of a publish to its acknowledgement,
with ten queues and with ten thousand here, and as many elsewhere. Not verified here: the time, the disk, the replicas
(`tests/cluster/test_replica_cost.py`).
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from pamqp import commands

from amqpd.vocabulary.records import Put, QueueRecord
from tests.harness.harness import Client
from tests.node.test_source_moves import QUORUM, SOURCE, Scene

FEW, MANY = 10, 10_000
REMOTE = SOURCE + 1
Basic, Confirm, Queues = commands.Basic, commands.Confirm, commands.Queue


def put_queues(scene: Scene, count: int) -> None:
    """This number of the source that begins here, and of another one."""
    changes = [
        Put(QueueRecord("/", f"{source}-{number}", (source << 40) + (number << 20), arguments=QUORUM, source=source))
        for source in (SOURCE, REMOTE)
        for number in range(count)
    ]
    scene.node.topology.apply(changes)
    scene.node.applied(changes)


def carry(scene: Scene, client: Client) -> None:
    """One message: published, delivered, confirmed, acknowledged."""
    client.publish(b"one", f"{SOURCE}-3", delivery_mode=2)
    scene.report()
    [message] = client.messages()
    client.send(Basic.Ack(message.tag))
    scene.report()


def cost(count: int) -> Counter[str]:
    scene = Scene()
    put_queues(scene, count)
    scene.begin()
    scene.harness.step()
    assert len(scene.node.queues) == len(scene.node.remote) == count
    client = scene.harness.client()
    client.call(Confirm.Select(), Confirm.SelectOk)
    client.call(Basic.Consume(queue=f"{SOURCE}-3"), Basic.ConsumeOk)
    for _ in range(5):
        carry(scene, client)
    counts: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        counts[event] += 1

    def opcode(frame: FrameType, event: str, argument: Any) -> Any:
        counts[event] += 1
        return opcode

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return opcode

    gc.collect()
    gc.disable()
    try:
        for hook, put in ((profile, sys.setprofile), (trace, sys.settrace)):
            before: Any = sys.getprofile() if put is sys.setprofile else sys.gettrace()
            put(hook)
            try:
                carry(scene, client)
            finally:
                put(before)
    finally:
        gc.enable()
    return counts


@pytest.mark.slow
def test_a_message_costs_no_more_whatever_the_number_of_queues() -> None:
    assert not cost(MANY) - cost(FEW)
