"""What goes wrong in a run: links, leaders, edges, memberships.

What comes in: a world. What goes out: its parts, hurt.
"""

from __future__ import annotations

from functools import partial

from tests.remote.simulation.node import Node
from tests.remote.simulation.world import World


class Faults:
    """The faults of one run."""

    def __init__(self, world: World) -> None:
        self.world, self.clock = world, world.clock

    def _some_node(self) -> Node:
        return self.clock.chance.choice(list(self.world.nodes.values()))

    def break_link(self) -> None:
        """And what is on its way is lost."""
        connection = self._some_node().connection
        if connection is not None and not connection.broken:
            self.clock.counts["link broken"] += 1
            self.world.cut(connection)

    def one_way(self) -> None:
        connection = self._some_node().connection
        if connection is not None and not connection.broken:
            self.clock.counts["link one-way"] += 1
            self.world.one_way(connection)

    def slow(self) -> None:
        """A link is, for a while; its edge may give it up, and what it sent arrives later."""
        node = self._some_node()
        connection = node.connection
        if connection is not None and not connection.broken:
            self.clock.counts["link slow"] += 1
            direction = self.clock.chance.choice([connection.forward, connection.backward])
            direction.latency_ms = self.clock.chance.choice([200, 700])
            if self.clock.chance.random() < 0.7:
                self.clock.after(5, 200, partial(node.broken, connection))

    def apart(self) -> None:
        """A link breaks, and stays broken for longer than a lease."""
        node = self._some_node()
        if node.connection is None or node.edge is None:
            return
        self.clock.counts["apart for a lease"] += 1
        self.world.cut(node.connection)
        node.away_until_ms = self.clock.now_ms + self.world.lease_ms * (0.5 + self.clock.chance.random())
        if self.clock.chance.random() < 0.5:
            self.end_membership(node)

    def end_membership(self, node: Node | None = None) -> None:
        """The store has it not any more, for a while."""
        node = node or self._some_node()
        if node.name in self.world.members:
            self.clock.counts["membership ended"] += 1
            self._members(node, False)
            self.clock.after(100, 2000, partial(self._members, node, True))

    def _members(self, node: Node, lives: bool) -> None:
        (self.world.members.add if lives else self.world.members.discard)(node.name)
        led = self.world.led
        if led is not None:
            led.membership()

    def crash(self) -> None:
        node = self._some_node()
        if node.edge is None:
            return
        node.crash()
        if self.clock.chance.random() < 0.4:
            self.clock.after(50, 500, partial(self.end_membership, node))
        self.clock.after(20, 1500, partial(self._restart, node))

    def _restart(self, node: Node) -> None:
        if node.edge is None:
            node.begin()

    def stall(self) -> None:
        """No majority answers for a while; then it does, or the leader is lost."""
        self.clock.counts["commits stalled"] += 1
        self.world.stalled_until_ms = self.clock.now_ms + self.clock.chance.choice([100, 300])
        if self.clock.chance.random() < 0.6:
            self.clock.at(self.world.stalled_until_ms - 1, self.world.lose_leader)

    def give_up(self) -> None:
        """Its clients have waited too long."""
        node = self._some_node()
        if node.edge is not None and node.edge.lane.reported < node.edge.lane.gathering:
            self.clock.counts["publishes given up"] += 1
            node.doubt()
            node.gives_up = True
            node.edge.give_up_publishes()
            node.gives_up = False
            node.send()

    def delete_queue(self) -> None:
        """One that has consumers."""
        world = self.world
        led = world.led
        if led is None or len(world.queues) < 2:
            return
        queue = self.clock.chance.choice(world.queues)
        world.queues.remove(queue)
        world.law.gone.add(queue)
        self.clock.counts["queue deleted"] += 1
        gone = led.queues.pop(queue)
        gone.delete()
        led.leader.queue_gone(queue)
        led.run()
