"""One machine: a disk, a process after the other, and how long the disk takes.

What comes in: what threads of its process are to do; faults. What goes out: when that is done.
Rules: 1. A commit that is under way at a crash is on the disk, or not. 2. A thread works on while the process is
stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from amqpd.journal.records import JournalDamaged
from tests.replication.simulation.process import Process

if TYPE_CHECKING:
    from tests.replication.simulation.cluster import Cluster

Done = Callable[[Any, BaseException | None], None]


class Machine:
    def __init__(self, name: str, cluster: Cluster, drive: Any) -> None:
        self.name = name
        self.drive = drive
        self.process: Process | None = None
        self.slow = 1.0
        self.stalls_until_ms = 0.0
        self.chance = cluster.clock.chance
        self._cluster = cluster
        self._under_way: dict[Process, Callable[[], Any]] = {}
        """commits"""

    @property
    def up(self) -> Process | None:
        """Its process, if it is a member and not stopped."""
        return self.process if self.process is not None and self.process.runs else None

    def boot(self) -> None:
        if self.process is None:
            self.process = Process(self, self._cluster)

    def end(self) -> None:
        """SIGKILL, or the power fails: what was under way may be on the disk although nobody was told."""
        process, counts = self.process, self._cluster.clock.counts
        if process is None:
            return
        process.up, self.process = False, None
        self._cluster.bugs.ended(process)
        commit = self._under_way.pop(process, None)
        if commit is not None:
            counts["crash with writes under way"] += 1
            if self._cluster.clock.chance.random() < 0.5:
                commit()
        self.drive.power_loss()
        if process.forwarder is not None:
            leaders = process.forwarder.led_sources
            peers = [
                peer for replica_set in leaders.replica_sets.values() for peer in replica_set.leader.peers.values()
            ]
            under_way = sum(len(peer.transfers) for peer in peers)
            counts["state given up"] += leaders.sent.transfers_begun - leaders.sent.transfers_done - under_way
            counts["state in rounds"] += leaders.sent.transfers_followed
        self._cluster.ended(process)

    def thread(self, process: Process, called: Callable[..., Any], arguments: tuple[Any, ...], done: Done) -> None:
        """Calls it, in the time that the disk takes."""
        clock, work = self._cluster.clock, partial(called, *arguments)
        if called != process.disk.commit:
            clock.after(0.1, 5, lambda: self._does(process, work, done) if process.up else None)
            return
        self._under_way[process] = work
        stalls_ms = max(0.0, self.stalls_until_ms - clock.now_ms)
        self._cluster.bugs.commits(self)
        clock.after(stalls_ms + 1 * self.slow, stalls_ms + 20 * self.slow, lambda: self._commits(process, work, done))

    def _commits(self, process: Process, work: Callable[[], Any], done: Done) -> None:
        if self._under_way.pop(process, None) is not None:
            self._does(process, work, done)

    def _does(self, process: Process, work: Callable[[], Any], done: Done) -> None:
        try:
            value = work()
        except JournalDamaged:
            # The node ends; its supervisor starts it again.
            self._cluster.clock.counts["damage ends a process"] += 1
            self.end()
            self._cluster.clock.after(10, 1200, self.boot)
        except Exception as error:  # noqa: BLE001 - it is the task's
            done(None, error)
        else:
            done(value, None)
