"""Starts of a cluster's nodes that are killed and paused at random, with real processes and an etcd that stalls.

    python -m tests.faults.cluster_starts --starts 200

What comes in: how many starts; a seed. What goes out: a table: kills and pauses by step, stalls, generations that
changed (none may), starts that were refused (none may), sources without a majority at the end (none may).
Rules: 1. Three nodes with queues of both kinds that have messages. A round takes one, two or all three of them, ended
by SIGKILL or SIGTERM, starts each up to three times with something happening to it, then waits until all serve.
2. A process is stopped first, then etcd is asked how far it came, then it is killed or goes on after a while: that is
the step. 3. At the end every message that was confirmed is there.
Not here: every step one by one (`tests/cluster/test_starts.py`), the load of the other rounds (`cluster_rounds.py`).
"""

from __future__ import annotations

import argparse
import base64
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pika

from amqpd.cluster.records import KnownRecord, decode, known_key, member_key

from ..clients.broker_process import BrokerProcess
from .cluster import Cluster

NAMES = "abc"
QUEUES = [f"q{number}" for number in range(6)]
CLASSIC = {f"classic-{name}": name for name in NAMES}
"""classic queues, and the node that has each"""
MESSAGES = 50
PREFIX = "test/"
RECOVERED = re.compile(r"\brecovered\b")
PAUSE_S = (0.2, 5.0)
STALL_S = 4.0
SERVED_S = 180.0
STEPS = ("before its disk was read", "before its record", "with its record", "serving", "ended by itself")


class Starts:
    """`wanted`: how many."""

    def __init__(self, cluster: Cluster, wanted: int, seed: int) -> None:
        self.cluster = cluster
        self.wanted = wanted
        self.chance = random.Random(seed)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.starts = self.stalls = self.changed = self.refused = 0
        self._etcd = threading.Lock()
        """who asks it, or stalls it"""
        self._generations: dict[str, int] = {}

    def run(self) -> None:
        cluster = self.cluster
        cluster.start()
        cluster.declare_quorum("a", QUEUES)
        for queue, name in CLASSIC.items():
            cluster.declare_classic(name, [queue])
        self._publish()
        self._generations = {name: self._known(name).generation for name in NAMES}
        while self.starts < self.wanted:
            names = self.chance.sample(NAMES, self.chance.choice((1, 1, 2, 3)))
            for name in names:
                broker = cluster.brokers[name]
                broker.kill() if self.chance.random() < 0.6 else broker.terminate(60)
            seeds = {name: self.chance.random() for name in names}
            stalls = self.chance.random() < 0.25
            with ThreadPoolExecutor(len(names) + 1) as starting:
                done = [starting.submit(self._comes_back, name, random.Random(seeds[name])) for name in names]
                if stalls:
                    done.append(starting.submit(self._stall, self.chance.uniform(0.2, 3)))
                for each in done:
                    each.result()
            for name in NAMES:
                now = self._known(name).generation
                if now != self._generations[name]:
                    self.changed += 1
                    print(f"{name} counts as another disk:\n{cluster.brokers[name].log[-3000:]}", flush=True)
                    self._generations[name] = now
            print(f"{self.starts} starts, {self.changed} generations changed, {self.refused} refused", flush=True)

    def _comes_back(self, name: str, chance: random.Random) -> None:
        broker = self.cluster.brokers[name]
        for _ in range(chance.randint(1, 3)):
            if not broker.running:
                self.starts += 1
                broker.spawn()
            how = chance.random()
            if how < 0.7:
                self._wait_recovered(broker)
                if how < 0.35:
                    self._wait_record(name, broker)
                    time.sleep(chance.uniform(0, 0.05))
                else:
                    time.sleep(chance.uniform(0, 0.3))
            else:
                time.sleep(chance.uniform(0, 3))
            if not broker.running:
                self._refused(name, broker)
                continue
            broker.send_signal(signal.SIGSTOP)
            step = self._step_of(name, broker)
            if chance.random() < 0.5:
                self.counts["killed", step] += 1
                broker.kill()
            else:
                self.counts["paused", step] += 1
                time.sleep(chance.uniform(*PAUSE_S))
                broker.send_signal(signal.SIGCONT)
        if not broker.running:
            self.starts += 1
            broker.spawn()
        while broker.exit_code(0.1) is None and "READY" not in _since(broker):
            pass
        if not broker.running:
            self._refused(name, broker)
            self.starts += 1
            broker.start(SERVED_S)

    def _refused(self, name: str, broker: BrokerProcess) -> None:
        """A supervisor starts it again."""
        broker.kill()
        said = _since(broker)
        self.counts["ended", STEPS[4]] += 1
        # A store that stalls for longer than a start waits is no refusal.
        if "another process is" in said or "Traceback" in said:
            self.refused += 1
        print(f"{name} ended:\n{said[-600:]}", flush=True)

    def _wait_recovered(self, broker: BrokerProcess) -> None:
        deadline = time.monotonic() + SERVED_S
        while broker.running and not RECOVERED.search(_since(broker)) and time.monotonic() < deadline:
            time.sleep(0.005)

    def _wait_record(self, name: str, broker: BrokerProcess) -> None:
        """What an earlier process left has ended before this one recovered."""
        deadline = time.monotonic() + SERVED_S
        while broker.running and not self._get(member_key(_whole(name))) and time.monotonic() < deadline:
            pass

    def _step_of(self, name: str, broker: BrokerProcess) -> str:
        said = _since(broker)
        if "READY" in said:
            return STEPS[3]
        if not RECOVERED.search(said):
            return STEPS[0]
        return STEPS[2] if self._get(member_key(_whole(name))) else STEPS[1]

    def _stall(self, after_s: float) -> None:
        time.sleep(after_s)
        with self._etcd:
            self.stalls += 1
            self.cluster.etcd.pause()
            time.sleep(STALL_S)
            self.cluster.etcd.go_on()

    def _get(self, key: str) -> str:
        # Where the store keeps the contract's keys is the layout's business: whatever ends so.
        with self._etcd:
            found = self.cluster.etcd.ask("/v3/kv/range", {"key": _b64(PREFIX), "range_end": _b64("test0")})
        values: list[dict[str, Any]] = found.get("kvs", [])
        ends = [base64.b64decode(each["value"]).decode() for each in values if _text(each["key"]).endswith(key)]
        return ends[0] if ends else ""

    def _known(self, name: str) -> KnownRecord:
        key = known_key(_whole(name))
        record = decode(key, self._get(key), 1)
        assert isinstance(record, KnownRecord)
        return record

    def _publish(self) -> None:
        for name in NAMES:
            queues = [*(QUEUES if name == "a" else ()), *(queue for queue, at in CLASSIC.items() if at == name)]
            with pika.BlockingConnection(pika.URLParameters(self.cluster.brokers[name].url)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                for queue in queues:
                    for number in range(MESSAGES):
                        channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2))

    def verdict(self) -> list[str]:
        """What is not allowed, after the last round."""
        wrong = []
        if self.changed:
            wrong.append(f"{self.changed} generations changed")
        if self.refused:
            wrong.append(f"{self.refused} starts were refused")
        for queue in (*QUEUES, *CLASSIC):
            leader = self.cluster.leader_of([queue])
            if leader != CLASSIC.get(queue, leader):
                wrong.append(f"{queue} of node {CLASSIC[queue]} is served by node {leader}")
            with pika.BlockingConnection(pika.URLParameters(self.cluster.brokers[leader].url)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.basic_publish("", queue, b"more")
                count = channel.queue_declare(queue, passive=True).method.message_count
            if count != MESSAGES + 1:
                wrong.append(f"{queue} has {count} messages where {MESSAGES + 1} were confirmed")
        return wrong

    def table(self) -> str:
        lines = [f"{'step':<26} {'killed':>7} {'paused':>7}"]
        for step in STEPS[:4]:
            lines.append(f"{step:<26} {self.counts['killed', step]:>7} {self.counts['paused', step]:>7}")
        ended = self.counts["ended", STEPS[4]]
        lines.append(
            f"{self.starts} starts, etcd stalled {self.stalls} times, {ended} ended by themselves (refused: "
            f"{self.refused}), generations changed: {self.changed}"
        )
        return "\n".join(lines)


def _since(broker: BrokerProcess) -> str:
    return "\n".join(broker._lines[broker._start_line :])


def _whole(name: str) -> str:
    from amqpd.setting_types import complete_node_name

    return str(complete_node_name(name))


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _text(coded: str) -> str:
    return base64.b64decode(coded).decode(errors="replace")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="starts-") as directory:
        cluster = Cluster(Path(directory), NAMES)
        try:
            starts = Starts(cluster, given.starts, seed)
            starts.run()
            wrong = starts.verdict()
        except BaseException:
            print(cluster.log, file=sys.stderr)
            raise
        finally:
            cluster.etcd.go_on()
            cluster.close()
    print(starts.table())
    print("\n".join(wrong) or "all sources have a majority, and every confirmed message is there")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
