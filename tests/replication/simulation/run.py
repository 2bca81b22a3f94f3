"""One run from a seed: faults first, then none.

What comes in: a seed, and a planted bug or none. What goes out: counts of what happened. Raises LawBroken, Stuck.
Rules: 1. Cluster, sources and how often which fault comes are drawn for each seed: so some runs have many of a
kind, and some have none. 2. When the faults have ended everything has to converge by itself.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

from tests.replication.simulation.bugs import NoBug
from tests.replication.simulation.cluster import Cluster

SAFETY_MS = 2_500
LIVENESS_MS = 6_000
STEP_MS = 25


class Stuck(AssertionError):
    """Without faults it did not converge."""


def run(seed: int, bugs: NoBug | None = None) -> Counter[str]:
    bugs = bugs or NoBug()
    with bugs.planted():
        cluster = _drawn(seed, bugs)
        _safety(cluster)
        _liveness(cluster)
        cluster.end()
        return cluster.clock.counts


def _drawn(seed: int, bugs: NoBug) -> Cluster:
    chance = random.Random(f"cluster of {seed}")
    names = list("abcde"[: bugs.nodes or chance.choice([3, 3, 4, 5])])
    sets = {}
    for source in range(1, chance.choice([1, 2, 4]) + 1):
        size = bugs.members or chance.choice([each for each in (3, 3, 4, 5) if each <= len(names)])
        sets[source] = tuple(sorted(chance.sample(names, size)))
    cluster = Cluster(seed, names, sets, bugs)
    cluster.network.loss = chance.choice([0, 0.02, 0.2])
    cluster.store.silence = chance.choice([0, 0.05, 0.3])
    cluster.kept_bytes_max = chance.choice([20, 200, 1 << 20])
    cluster.behind_bytes_max = chance.choice([100, 1 << 20, 1 << 20])
    cluster.missed_bytes_max = chance.choice([10, 30, 1 << 20])
    cluster.network.flips = chance.choice([0, 0, 0, 0.002])
    cluster.settles = chance.choice([0, 0.1, 0.5, 0.9])
    cluster.idle_ms = chance.choice([0, 0, 400])
    cluster.fast_takeover = chance.random() < 0.3
    cluster.supervised = chance.random() < 0.5
    for node in cluster.nodes.values():
        node.disk.slow = chance.choice([0.5, 1, 1, 10])
    return cluster


def _safety(cluster: Cluster) -> None:
    clock = cluster.clock
    chance = clock.chance
    often: list[tuple[Callable[[], None], float]] = [
        (cluster.crash, chance.choice([0, 100, 400])),
        (cluster.break_link, chance.choice([0, 50, 300])),
        (cluster.stop, chance.choice([0, 0, 150, 500])),
        (cluster.wipe, cluster.bugs.wipe_ms or chance.choice([0, 0, 700])),
        (cluster.damage, chance.choice([0, 0, 300])),
        (cluster.stall, chance.choice([0, 0, 200, 700])),
        (cluster.partition, chance.choice([0, 200, 600])),
        (cluster.isolate_home, chance.choice([0, 250, 700])),
        (cluster.seal_of_the_late, cluster.bugs.late_ms or chance.choice([0, 0, 0, 300])),
        (cluster.forget_seal, cluster.bugs.forget_ms or chance.choice([0, 0, 0, 600])),
        (cluster.store.put_back, cluster.bugs.put_back_ms or chance.choice([0, 0, 0, 1500])),
        (cluster.tell_committed, 30),
    ]
    # Drawn apart, so that the runs of other seeds stay what they are.
    apart = random.Random(f"taker of {cluster.clock.seed}")
    often.append((cluster.taker_answers, cluster.bugs.taker_ms or apart.choice([0, 0, 0, 400])))
    take_over_ms = chance.choice([60, 200, 800])
    for source in cluster.sets:
        often.append((partial(cluster.take_over, source), take_over_ms))
        often.append((partial(cluster.publish, source), chance.choice([2, 6, 30])))
        cluster.take_over(source)
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


def _liveness(cluster: Cluster) -> None:
    cluster.heal()
    clock = cluster.clock
    ends_ms = clock.now_ms + LIVENESS_MS
    last: dict[int, int] = {}
    while clock.now_ms < ends_ms:
        cluster.connect()
        for source, members in cluster.sets.items():
            home = cluster.home_of(source)
            if home is None:
                if not any(source in node.take_overs.attempts for node in cluster.nodes.values()):
                    # A home that the store, put back, does not know: nobody else may take over while it reigns.
                    reigning = [name for name in members if source in cluster.nodes[name].homes]
                    cluster.nodes[clock.chance.choice(reigning or list(members))].take_overs.begin(source)
            elif last.get(source, 0) < home.homes[source][0].epoch:
                last[source] = home.homes[source][0].epoch
                home.publish(source, b"last-%d-%d" % (source, last[source]))
        cluster.tell_committed()
        clock.run_until(clock.now_ms + STEP_MS)
        if all(cluster.equal(source) and source in last for source in cluster.sets) and not any(
            node.waiting or node.gathered for node in cluster.nodes.values()
        ):
            clock.counts["converged"] += 1
            return
    raise Stuck(
        f"after {LIVENESS_MS} ms without faults: "
        + "; ".join(
            f"source {source} of {members}: {[cluster.nodes[each].replicas[source].log.last for each in members]}"
            for source, members in cluster.sets.items()
            if not cluster.equal(source)
        )
    )
