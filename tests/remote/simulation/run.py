"""One run from a seed: faults first, then none.

What comes in: a seed, and a planted mistake or none. What goes out: counts of what happened. Raises LawBroken, Stuck.
Rules: 1. Nodes, queues, links and how often which fault comes are drawn for each seed. 2. When the faults have ended,
everything has to be consumed, decided and equal at both ends by itself.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

from amqpd.queues import messages
from amqpd.remote.edge import EdgeState
from amqpd.remote.messages import Publish
from tests.remote.simulation.bugs import NoBug
from tests.remote.simulation.faults import Faults
from tests.remote.simulation.law import LawBroken
from tests.remote.simulation.node import Node
from tests.remote.simulation.queue import NO_BOUND
from tests.remote.simulation.world import World
from tests.replication.simulation.clock import Clock

SAFETY_MS = 4_000
LIVENESS_MS = 20_000
STEP_MS = 100
RUN_BYTES_MAX = 1_000
"""of the publish by which a bound is passed"""

HAPPENS = (
    *("published", "message confirmed", "message refused", "publisher waits", "publishes given up"),
    *("settled by settle", "settled by requeue", "settled by reject", "delivered", "delivered again"),
    *("subscribed", "cancelled", "released", "got", "got nothing", "released a get", "shared prefetch moved"),
    *("question answered", "purged", "purge in steps", "attached", "claim refused"),
    *("epoch committed", "leader began"),
    *("leader lost with a part of its tail", "leader lost, and its tail kept", "old leader that is reached"),
    *("handed over", "hand-over cut off", "link broken", "link one-way", "link slow", "lost on the way"),
    *(
        "attach slow",
        "apart for a lease",
        "membership ended",
        "edge crashed",
        "held requeued after a lease or an end",
    ),
    *("incarnation ended, and another one begun", "queue deleted", "consumer cancelled by the broker"),
    *("commits stalled", "delivery dropped", "ledgers differed", "converged"),
)
"""each kind of event: one that never happened was not tested"""


class Stuck(AssertionError):
    """Without faults it did not converge."""


def run(seed: int, bugs: NoBug | None = None, is_durable: bool = False) -> Counter[str]:
    """`is_durable`: with queues of the node (`durable.py`)."""
    bugs, clock = bugs or NoBug(), Clock(seed)
    enabled = gc.isenabled()
    gc.disable()
    try:
        with bugs.planted(), patch.object(messages, "PURGED_AT_ONCE_MAX", 2):
            world = World(clock, bugs, is_durable)
            _safety(world)
            _liveness(world)
    finally:
        if enabled:
            gc.enable()
    return clock.counts


def outcome(seed: int, is_durable: bool = False) -> tuple[int, Counter[str], str]:
    """The seed, what happened, and what was found, if anything was."""
    try:
        return seed, run(seed, None, is_durable), ""
    except Exception as error:  # noqa: BLE001 - told, with the seed
        return seed, Counter(), f"{type(error).__name__}: {error}"


def _safety(world: World) -> None:
    clock = world.clock
    chance, faults = random.Random(f"faults of {clock.seed}"), Faults(world)
    world.lead()
    for node in world.nodes.values():
        node.begin()
        _repeat(world, node.look, 60, ends=False)
        _repeat(world, partial(_heartbeat, node), 80, ends=False)
        _repeat(world, node.act, chance.choice([8, 15, 40]))
    drawn: dict[str, tuple[Callable[[], None], int]] = {
        "break": (faults.break_link, chance.choice([0, 150, 700])),
        "one-way": (faults.one_way, chance.choice([0, 0, 900])),
        "slow": (faults.slow, chance.choice([0, 0, 500])),
        "apart": (faults.apart, chance.choice([0, 0, 1500])),
        "membership": (faults.end_membership, chance.choice([0, 0, 2000])),
        "crash": (faults.crash, chance.choice([0, 0, 1000, 3000])),
        "give up": (faults.give_up, chance.choice([0, 0, 0, 400])),
        "delete": (faults.delete_queue, chance.choice([0, 0, 0, 3000])),
        "stall": (faults.stall, chance.choice([0, 0, 400, 1500])),
        "lose": (world.lose_leader, chance.choice([0, 300, 1000, 3000])),
        "move": (world.move_leader, chance.choice([0, 0, 300, 1000])),
    }
    only = world.bugs.faults
    for name, (what, drawn_ms) in drawn.items():
        every_ms = drawn_ms if only is None else only.get(name, 0)
        if every_ms:
            _repeat(world, what, every_ms)
    clock.run_until(SAFETY_MS)
    if chance.random() < 0.5 and only is None:
        for node in world.nodes.values():
            if node.connection is not None:
                world.cut(node.connection)
    world.faults = False


def _heartbeat(node: Node) -> None:
    edge = node.edge
    if edge is not None:
        edge.audit()
        node.send()
        publishes = sum(each.nbytes for _, each in edge._operations.above(0) if isinstance(each.operation, Publish))
        if publishes > node.world.bytes_max + RUN_BYTES_MAX:
            raise LawBroken(f"{publishes} bytes of publishes are undecided, and publishers do not wait")


def _repeat(world: World, what: Callable[[], None], every_ms: float, ends: bool = True) -> None:
    def again() -> None:
        if world.faults or not ends:
            what()
            world.clock.after(every_ms / 4, every_ms * 1.75, again)

    world.clock.after(0, every_ms, again)


def _liveness(world: World) -> None:
    """Everybody consumes and acknowledges, until nothing is left."""
    clock = world.clock
    world.drops = 0
    world.members = {*world.nodes, "z"}
    for node in world.nodes.values():
        node.latency_ms = min(node.latency_ms, 30)
        node.away_until_ms = 0
        if node.connection is not None:
            for direction in (node.connection.forward, node.connection.backward):
                direction.latency_ms = min(direction.latency_ms, 30)
        if node.edge is None:
            node.begin()
    if world.led is not None:
        world.led.membership()
    world.weights = [0, 8, 1, 0, 0, 0, 0]
    world.settling = [1, 0, 0]
    world.consumers_max = 20
    world.queues = [each for each in world.all_queues if each not in world.law.gone]
    if world.led is not None:
        for queue in world.led.queues.values():
            queue.bound = NO_BOUND
    ends_ms = clock.now_ms + LIVENESS_MS
    why = ""
    while clock.now_ms < ends_ms:
        for _ in range(10):
            for node in world.nodes.values():
                node.act()
            clock.run_until(clock.now_ms + STEP_MS / 10)
        why = _unfinished(world)
        if not why:
            world.law.end(world.applied.live)
            _windows(world)
            clock.counts["converged"] += 1
            return
    raise Stuck(f"after {LIVENESS_MS} ms without faults: {why}")


def _unfinished(world: World) -> str:
    """What is not done yet."""
    led = world.led
    if led is None or not led.leader.delivers:
        return "no leader that delivers"
    for node in world.nodes.values():
        edge = node.edge
        assert edge is not None
        if edge.state is not EdgeState.ATTACHED or node.knows is not led or not world.valid(node):
            return f"{node.name} is {edge.state} at epoch {edge.epoch}"
        if edge.lane.reported < edge.lane.gathering:
            return f"operations of {node.name} above {edge.lane.reported} of {edge.lane.gathering} are undecided"
        for got in node.quiet_got:
            for at in list(got.held):
                got.act(edge, at, at, edge.settle)
        if any(each.held and not each.is_cancelled for each in node.consumers):
            return f"clients of {node.name} hold {[list(each.held.values()) for each in node.consumers]}"
    left = {queue: live for queue, live in world.applied.live.items() if live and queue not in world.law.gone}
    if left:
        ready = {number: queue.ready[:5] for number, queue in led.queues.items()}
        return f"queues have { ({queue: list(live)[:5] for queue, live in left.items()}) }, ready {ready}"
    return _differences(world)


def _differences(world: World) -> str:
    """Rule 11 of the law: what both ends have of each subscription is the same."""
    led = world.led
    assert led is not None
    for node in world.nodes.values():
        edge = node.edge
        assert edge is not None
        found = led.leader.incarnations[node.name, edge.incarnation]
        if found.inbox or found.mark != edge.operation_count:
            return f"mark {found.mark} of {node.name}, whose last operation is {edge.operation_count}"
        there, here = sorted(found.subscribers), sorted(edge._subscriptions)
        if there != here:
            return f"subscriptions {there} of {node.name}, which has {here}"
        for number, each in edge._subscriptions.items():
            other = found.subscribers[number]
            if each.waits is not None:
                return f"a get of {node.name} has no answer"
            at_edge = each.received, each.received_bytes, each.messages, each.nbytes, each.held.count
            at_leader = other.delivered, other.delivered_bytes, other.messages, other.nbytes, other.held.count
            if at_edge != at_leader or other.gives_way or each.asked:
                return f"subscription {number} of {node.name}: {at_edge}, and at the leader {at_leader}"
        if edge._questions:
            return f"questions of {node.name} have no answer"
        for consumer in node.consumers:
            state = edge._subscriptions.get(consumer.number)
            if state is not None and not consumer.is_cancelled and (state.messages, state.nbytes) != consumer.wants:
                return f"subscription {consumer.number} of {node.name} may get {state.messages}, not {consumer.wants}"
    return ""


def _windows(world: World) -> None:
    led = world.led
    assert led is not None
    differed = world.differences + led.leader.differences
    differed += sum(node.edge.differences for node in world.nodes.values() if node.edge is not None)
    if differed:
        world.clock.counts["ledgers differed"] += differed
        if not world.clock.counts["delivery dropped"]:
            raise LawBroken(f"the ledgers differed {differed} times, without a fault that makes them")
