"""Dead letters and delayed messages for a queue of another node, with faults at any time: nothing is lost.

What is verified, with random faults between all steps: each message that was on the disk of the node where it died is
in the target in the end. It is there once while only connections break and leaders of the target are lost; more often
at most when the process where it died is killed, or has led the target itself and lost that. Not verified here:
refusals and strategies (`test_dead_letters_far.py`), faults of the protocol between the nodes
(`tests/remote/simulation`).
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pamqp import commands

from amqpd.queues.expiry import RETRY_MS
from tests.harness.harness import Message
from tests.remote.faulty_nodes import FaultyNodes

Basic, Queues = commands.Basic, commands.Queue
STEPS = 60
PATIENCE = 40
"""beats after the last fault"""
NODES = ["a", "b"]


class Story:
    """One random run."""

    def __init__(self, seed: int, kills: bool) -> None:
        self.chance, self.kills = Random(seed), kills
        self.nodes = FaultyNodes()
        self.faults = dict.fromkeys(["cut", "lost", "moved", "killed", "uncommitted"], 0)
        self.sent: list[bytes] = []
        self._declare()

    def _declare(self) -> None:
        client = self.nodes.client("a")
        to_q = {"x-dead-letter-exchange": "amq.fanout"}
        client.declare("here", durable=True)
        client.declare("expiring", durable=True, arguments={**to_q, "x-message-ttl": 50})
        client.declare("short", durable=True, arguments={**to_q, "x-max-length": 0})
        client.declare("rejecting", durable=True, arguments=to_q)
        for queue in ("q", "here"):
            client.call(Queues.Bind(0, queue, "amq.fanout"), Queues.BindOk)

    def run(self) -> None:
        actions = [self.publish, self.publish, self.go_on, self.go_on, self.go_on, self.wait, self.fault]
        for _ in range(STEPS):
            self.chance.choice(actions)()
        self.end()

    def publish(self) -> None:
        harness = self.nodes.harness["a"]
        automatic, harness.automatic = harness.automatic, True
        client, body = harness.client(), b"%d" % len(self.sent)
        queue = self.chance.choice(["expiring", "short", "rejecting", "delayed"])
        if queue == "delayed":
            client.publish(body, "", "amq.fanout", delivery_mode=2, headers={"x-delay": 50})
        else:
            client.publish(body, queue, delivery_mode=2)
        self.sent.append(body)
        if queue == "rejecting" and self.chance.random() < 0.8:
            self.reject(client)
        harness.automatic = automatic
        client.lose()

    def reject(self, client: Any) -> None:
        client.send(Basic.Get(queue="rejecting"))
        client.collect()
        for message in client.take(Message):
            client.send(Basic.Reject(delivery_tag=message.tag, requeue=False))

    def go_on(self) -> None:
        self.nodes.some(self.chance.randrange(1, 6))

    def wait(self) -> None:
        for each in self.nodes.harness.values():
            each.node.now_ms += self.chance.choice([10, 60, 300])
            each.node.remote_sessions.beat()

    def fault(self) -> None:
        nodes, chance = self.nodes, self.chance
        kind = chance.choice([name for name in self.faults if self.kills or name not in ("killed", "moved")])
        if kind == "cut":
            (nodes.cut if nodes.linked else nodes.heal)()
        elif kind == "uncommitted":
            nodes.commits = not nodes.commits
        elif kind == "lost":
            nodes.take_over(nodes.leader)
        elif kind == "moved":
            nodes.take_over(chance.choice(NODES))
        else:
            if nodes.leader == "a":
                nodes.take_over("b")
            nodes.kill("a")
        self.faults[kind] += 1

    def end(self) -> None:
        nodes = self.nodes
        nodes.commits = True
        nodes.heal()
        if self.kills:
            # What entered the target here, and was committed by no leader, stands on the disk where it died.
            nodes.take_over("b")
            nodes.kill("a")
            nodes.heal()
        for _ in range(PATIENCE):
            client = nodes.harness["a"].client()
            self.reject(client)
            client.lose()
            nodes.beat(RETRY_MS // 2)

    def found(self, queue: str, node: str) -> list[bytes]:
        client = self.nodes.client(node)
        client.send(Basic.Consume(queue=queue, no_ack=True))
        self.nodes.step()
        client.collect()
        return [message.body for message in client.take(Message)]

    def check(self) -> None:
        for name in ("expiring", "short", "rejecting"):
            queue = self.nodes.harness["a"].node.queues["/", name]
            assert (queue.ready_count, queue.unacked_count) == (0, 0), name
        for target, node in (("q", self.nodes.leader), ("here", "a")):
            found = self.found(target, node)
            assert set(found) == set(self.sent), target
            if not self.kills:
                assert sorted(found) == sorted(self.sent), target
        assert not any(harness.bugs for harness in self.nodes.harness.values())


@pytest.mark.parametrize("kills", [False, True], ids=["nobody-is-killed", "killed"])
@pytest.mark.parametrize("first", range(0, 20, 10))
def test_nothing_is_lost_whatever_breaks_in_between(kills: bool, first: int) -> None:
    for seed in range(first, first + 10):
        story = Story(seed, kills)
        try:
            story.run()
            story.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {story.faults}: {error}") from error
