"""How long a quorum queue is not served when its leader is lost, or stopped: amqpd beside RabbitMQ.

    python -m tests.faults.takeover_times --rounds 20 --fault kill
    python -m tests.faults.takeover_times --rounds 20 --fault stop
    python -m tests.faults.takeover_times --rounds 20 --fault cut

What comes in: rounds; `kill` (the process is killed, all on one machine), `stop` (it is told to end, SIGTERM, with
the settings between machines) or `cut` (its machine is cut off from all others, each on a machine of its own; root).
What goes out: a table: median and worst seconds from the fault to the first confirm, by either broker.
Rules: 1. One harness for both: a client at each of three nodes publishes one message after the other, persistent and
with confirms, and what was sent after the fault counts when it is confirmed at a node that was not hurt. 2. Each has
its own settings for this: amqpd's `fast_takeover` where processes are killed on one machine, else the defaults of
both. 3. Brokers are measured one after the other. In the next round all three run and are linked again, and each
has confirmed that does so at all: of amqpd the leader, until clients may use any node.
Not here: whether anything is lost (`test_cluster_kill.py`, `test_cluster_network.py`).
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ..harness.namespaces import HERE, Machines
from .cluster import Cluster
from .probes import QUEUE, Probes
from .rabbitmq_cluster import RabbitMQCluster

NAMES = "abc"
SERVED_S = 180.0
FAULTS = ("kill", "stop", "cut")


def amqpd(directory: Path, machines: Machines | None, fault: str) -> Cluster:
    return Cluster(directory, NAMES, {"AMQPD_FAST_TAKEOVER": "true"} if fault == "kill" else {}, machines)


def rabbitmq(directory: Path, machines: Machines | None, _: str) -> RabbitMQCluster:
    return RabbitMQCluster(directory, NAMES, machines)


MAKERS: dict[str, Callable[[Path, Machines | None, str], Cluster | RabbitMQCluster]] = {
    "amqpd": amqpd,
    "RabbitMQ": rabbitmq,
}


def measured(cluster: Cluster | RabbitMQCluster, rounds: int, fault: str) -> list[float]:
    """Seconds, of each round."""
    cluster.start()
    if isinstance(cluster, Cluster):
        cluster.declare_quorum(NAMES[0], [QUEUE])
    else:
        cluster.declare(QUEUE)
    probes = Probes(cluster)
    probes.start()
    try:
        return [_round(cluster, probes, fault) for _ in range(rounds)]
    finally:
        probes.end()


def _round(cluster: Cluster | RabbitMQCluster, probes: Probes, fault: str) -> float:
    machines = cluster.machines
    # The leader of amqpd's is where it confirms; RabbitMQ confirms everywhere, and its nodes know who leads.
    confirmed_at = probes.first_after(time.monotonic(), SERVED_S).forwarder
    leader = confirmed_at if isinstance(cluster, Cluster) else cluster.leader_of(QUEUE)
    others = [name for name in NAMES if name != leader]
    fault_s = time.monotonic()
    if fault == "stop":
        cluster.brokers[leader].send_signal(signal.SIGTERM)
    elif machines is None:
        cluster.brokers[leader].kill()
    else:
        machines.part([[leader], [*others, HERE]])
        fault_s = time.monotonic()  # some links are cut before others: until now a majority may have been reached
    found = probes.first_after(fault_s, SERVED_S, others)
    if fault == "stop":
        cluster.brokers[leader].wait()
    if machines is None:
        cluster.brokers[leader].start()
    else:
        machines.heal()
    if isinstance(cluster, RabbitMQCluster):
        back_s = time.monotonic()
        for name in NAMES:
            probes.first_after(back_s, SERVED_S, [name])
    seconds = found.confirmed_s - fault_s
    print(f"  leader {leader}: {seconds:.2f} s, then {found.forwarder}", flush=True)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--fault", choices=FAULTS, default="kill")
    parser.add_argument("--broker", choices=[*MAKERS], action="append", help="only this one")
    given = parser.parse_args()
    lines = [f"{'broker':<10} {'fault':<6} {'rounds':>6} {'median s':>9} {'worst s':>8}"]
    for broker in given.broker or MAKERS:
        print(f"{broker}, {given.fault}:", flush=True)
        with tempfile.TemporaryDirectory(prefix="takeover-") as directory:
            machines = Machines(NAMES) if given.fault == "cut" else None
            try:
                cluster = MAKERS[broker](Path(directory), machines, given.fault)
                try:
                    found_s = measured(cluster, given.rounds, given.fault)
                except BaseException:
                    print(cluster.log, file=sys.stderr)
                    raise
                finally:
                    cluster.close()
            finally:
                if machines is not None:
                    machines.close()
        lines.append(
            f"{broker:<10} {given.fault:<6} {len(found_s):>6} {statistics.median(found_s):>9.2f} {max(found_s):>8.2f}"
        )
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
