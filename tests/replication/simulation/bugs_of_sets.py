"""Mistakes while the set of a source changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from amqpd.cluster import led_sources as led_sources_module
from amqpd.peers.versions import HIGHEST
from amqpd.replication import leader as leader_module
from amqpd.replication.receiver import Receiver
from amqpd.replication.replica import Write
from tests.replication.simulation.bugs import Patched

DESIRED_SETS = {"desired_set": 1500, "crash": 4000, "isolate": 2500}
HALVES = {"desired_set": 1200, "partition": 1500}
"""a leader and one that learns are apart from the others of the set"""


class AddedTooEarly(Patched):
    """One that learns is a member before it has everything."""

    where, name = leader_module.ReplicaSetLeader, "admissible"
    only = DESIRED_SETS

    @staticmethod
    def instead(self: Any, peer: str) -> Any:
        return set(self.sources) if peer in self.learners else _admissible(self, peer)


_admissible = leader_module.ReplicaSetLeader.admissible


class NewSetSpeaksOfBefore(Patched):
    """The replica set that a source has come to says that its earlier entries are committed, as its other sources
    are."""

    where, name = leader_module.ReplicaSetLeader, "committed_of"
    only = HALVES
    nodes, members, sources = 4, 3, 1
    instead = staticmethod(lambda replica_set, source: replica_set.left_out.get(source, replica_set.passed))


class NumbersOfBefore(Patched):
    """A peer takes numbers of the new replica set for entries from before the source came to it."""

    where, name = Receiver, "open"
    only = HALVES
    nodes, members, sources = 4, 3, 1

    @staticmethod
    def instead(self: Receiver, opening: Any, writes: list[Write]) -> Any:
        sources = tuple(each._replace(since=0) for each in opening.sources)
        return _open(self, replace(opening, sources=sources), writes)


_open = Receiver.open


class FramesOfTheOwnVersion(Patched):
    """A leader writes frames in its own version, whatever the others of the set read."""

    where, name = led_sources_module, "of_set"
    nodes, members, sources = 3, 3, 1
    instead = staticmethod(lambda members, heard: HIGHEST)
