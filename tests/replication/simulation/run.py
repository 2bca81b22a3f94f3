"""One run from a seed: faults first, then none.

What comes in: a seed, and a planted bug or none; `AMQPD_SIMULATION_DISK`. What goes out: counts of what happened.
Raises LawBroken, Stuck.
Rules: 1. Cluster, sources and how often which fault comes are drawn for each seed: so some runs have many of a
kind, and some have none. 2. When the faults have ended everything has to converge by itself.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from amqpd.cluster import led_replica_set, led_sources, leftovers, own_disk, set_changes
from amqpd.replication.leader import ReplicaSetLeader
from tests.replication.simulation.bugs import NoBug
from tests.replication.simulation.clock import Clock
from tests.replication.simulation.cluster import Cluster
from tests.replication.simulation.contents import read_short
from tests.replication.simulation.disk import SimulatedDrive
from tests.replication.simulation.faults import Faults
from tests.replication.simulation.real_disk import RealDrive
from tests.replication.simulation.scenarios import Scenarios
from tests.replication.simulation.tasks import on_simulated_time

SAFETY_MS = 15_000
LIVENESS_MS = 60_000
STEP_MS = 250
QUIET_MS = 3_000


class Stuck(AssertionError):
    """Without faults it did not converge."""


def run(seed: int, bugs: NoBug | None = None, disk: str = "memory") -> Counter[str]:
    """`disk`: memory or sqlite."""
    bugs, clock = bugs or NoBug(), Clock(seed)
    with ExitStack() as world:
        world.callback(read_short.cache_clear)
        world.callback(gc.enable)
        gc.disable()  # a run leaves some MB of garbage in cycles, and would look for it a hundred times
        world.enter_context(on_simulated_time(clock))
        world.enter_context(bugs.planted())

        def drive(name: str, damaged: Callable[[], None]) -> Any:
            if disk == "memory":
                return SimulatedDrive(damaged)
            real = RealDrive(Path(world.enter_context(TemporaryDirectory())) / name)
            world.callback(real.end)
            return real

        cluster = _drawn(clock, bugs, drive, world)
        cluster.begin()
        _safety(cluster)
        _liveness(cluster)
        cluster.end()
    return clock.counts


def outcome(disk: str, seed: int) -> tuple[int, Counter[str], str]:
    """The seed, what happened, and what was found, if anything was: for whoever runs many, in other processes."""
    try:
        return seed, run(seed, disk=disk), ""
    except Exception as error:  # noqa: BLE001 - told, with the seed
        return seed, Counter(), f"{type(error).__name__}: {error}"


def _drawn(clock: Clock, bugs: NoBug, drive: Callable[[str, Callable[[], None]], Any], world: ExitStack) -> Cluster:
    chance = random.Random(f"cluster of {clock.seed}")
    names = list("abcde"[: bugs.nodes or chance.choice([3, 3, 4, 5])])
    sets = {}
    for source in range(1, (bugs.sources or chance.choice([1, 2, 3])) + 1):
        size = bugs.members or chance.choice([each for each in (3, 3, 4, 5) if each <= len(names)])
        sets[source] = tuple(sorted(chance.sample(names, size)))
    cluster = Cluster(clock, names, sets, bugs, drive)
    cluster.store.silence = chance.choice([0, 0.05, 0.3])
    cluster.network.flips = chance.choice([0, 0, 0.01])
    cluster.network.latency_ms = chance.choice([5, 40, 40, 150])
    cluster.settles = chance.choice([0, 0.1, 0.5, 0.9])
    cluster.dead_letters = chance.choice([0, 0.1, 0.3])
    cluster.idle_ms = chance.choice([0, 0, 4000])
    cluster.fast_takeover = chance.random() < 0.3 and not bugs.only
    cluster.beat_ms = chance.choice([200, 400])
    for machine in cluster.machines.values():
        machine.slow = chance.choice([0.5, 1, 1, 10])
    if {"late", "answers", "stalled answers"} & bugs.only.keys():
        # What is to be seen is the moment in which two leaders deliver.
        cluster.network.latency_ms, cluster.store.silence, cluster.beat_ms = 5, 0, 200
        for machine in cluster.machines.values():
            machine.slow = 0.5
    # Limits, so small that they are met.
    leader = partial(
        ReplicaSetLeader,
        kept_bytes_max=chance.choice([100, 1000, 1 << 20]),
        behind_bytes_max=chance.choice([500, 1 << 20]),
        missed_bytes_max=chance.choice([50, 1 << 20]),
    )
    world.enter_context(patch.object(own_disk, "SOURCES", len(sets)))
    world.enter_context(patch.object(led_replica_set, "ReplicaSetLeader", leader))
    world.enter_context(patch.object(led_sources, "LAG_BYTES_MAX", chance.choice([2000, 1 << 20])))
    world.enter_context(patch.object(own_disk, "FETCH_BYTES_MAX", chance.choice([100, 1 << 20])))
    # Times, so short that what follows them is seen.
    world.enter_context(patch.object(leftovers, "DROP_S", 2.0))
    world.enter_context(patch.multiple(set_changes, LEADER_AGAIN_S=1.0, LEADER_AGAIN_S_MAX=4.0))
    return cluster


def _safety(cluster: Cluster) -> None:
    clock, bugs = cluster.clock, cluster.bugs
    chance, faults = clock.chance, Faults(cluster)
    scenarios = Scenarios(cluster, faults)
    # By itself, so that what comes to be drawn here changes no run with one kind of fault only.
    more = random.Random(f"more of {clock.seed}")
    drawn: dict[str, tuple[Callable[[], None], float]] = {
        "crash": (faults.crash, chance.choice([0, 1000, 4000])),
        "break": (cluster.break_some_link, chance.choice([0, 500, 3000])),
        "stop": (faults.stop, chance.choice([0, 0, 1500, 5000])),
        "wipe": (faults.wipe, chance.choice([0, 0, 7000])),
        "copy": (faults.keep_copy, 3000),
        "restore": (faults.restore, chance.choice([0, 0, 7000])),
        "damage": (faults.damage, chance.choice([0, 0, 3000])),
        "stall": (faults.stall, chance.choice([0, 0, 2000, 7000])),
        "partition": (faults.partition, chance.choice([0, 2000, 6000])),
        "isolate": (scenarios.isolate_leader, chance.choice([0, 2500, 7000])),
        "late": (scenarios.vote_of_the_late, chance.choice([0, 0, 0, 3000])),
        "forget": (scenarios.forget_vote, chance.choice([0, 0, 0, 6000])),
        "answers": (scenarios.taker_answers, chance.choice([0, 0, 0, 4000])),
        "chain": (scenarios.chain_of_leaders, chance.choice([0, 0, 5000])),
        "stalled answers": (scenarios.answers_wait, more.choice([0, 0, 0, 4000])),
        "left out": (scenarios.left_out_and_lost, more.choice([0, 0, 5000])),
        "start": (faults.hurt_starts, more.choice([0, 0, 3000, 9000])),
        "desired_set": (faults.desired_set, more.choice([0, 0, 2500])),
        "put back": (cluster.store.put_back, chance.choice([0, 0, 0, 15000])),
    }
    only = bugs.only
    often = [(what, only.get(name, 0) if only else every_ms) for name, (what, every_ms) in drawn.items()]
    often.append((cluster.deliver, 20 if only else 100))
    take_over_ms = chance.choice([2000, 8000])
    for source in cluster.sets:
        often.append((partial(scenarios.take_over, source), take_over_ms))
        often.append((partial(cluster.publish, source), chance.choice([50, 100, 300])))
    for what, every_ms in often:
        if every_ms:
            clock.after(0, every_ms, partial(_repeat, cluster, what, every_ms))
    clock.after(SAFETY_MS / 4, SAFETY_MS / 2, cluster.store.keep_copy)
    ends_ms = clock.now_ms + SAFETY_MS
    while clock.now_ms < ends_ms:
        clock.run_until(clock.now_ms + STEP_MS)
        cluster.connect()


def _repeat(cluster: Cluster, what: Callable[[], None], every_ms: float) -> None:
    if cluster.faults:
        what()
        cluster.clock.after(every_ms / 4, every_ms * 2, partial(_repeat, cluster, what, every_ms))


def _publishers_go_on(cluster: Cluster) -> None:
    """Nothing goes on any more, so nothing is left that publishers of a node would wait for."""
    cluster.clock.run_until(cluster.clock.now_ms + QUIET_MS)
    waiting = [process.name for process in cluster.up() if process.journal.full]
    if waiting:
        raise Stuck(f"nothing goes on, and all publishers of {waiting} wait")


def _liveness(cluster: Cluster) -> None:
    cluster.heal()
    clock = cluster.clock
    ends_ms = clock.now_ms + LIVENESS_MS
    last: dict[int, int] = {}
    faults = Faults(cluster)
    while clock.now_ms < ends_ms:
        cluster.connect()
        faults.take_back_desired_sets()
        for source in cluster.sets:
            leader = cluster.leader_of(source)
            if leader is not None and last.get(source, 0) < leader.queues[source].epoch:
                last[source] = leader.queues[source].epoch
                cluster.publish_last(source, leader)
        clock.run_until(clock.now_ms + STEP_MS)
        if len(last) == len(cluster.sets) and all(map(cluster.equal, cluster.sets)):
            clock.counts["converged"] += 1
            _publishers_go_on(cluster)
            return
    raise Stuck(
        f"after {LIVENESS_MS} ms without faults: "
        + "; ".join(
            f"source {source} of {cluster.members(source)}, {cluster.store.records[source].leader}, "
            f"{cluster.store.desired_sets.get(source, 'nothing desired')}: {cluster.said(source)}"
            for source in cluster.sets
            if source not in last or not cluster.equal(source)
        )
    )
