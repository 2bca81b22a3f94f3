"""Rounds of load and faults on a cluster, and what came of them.

What comes in: a cluster on machines, a seed, how many rounds. What goes out: a history of all clients, a line for
each round, counts of the faults made.
Rules: 1. In each round publishers and consumers run at the leader, a fault is made, lasts, and is healed; then every
publisher must end, or have an answer for everything that it sent, within `ANSWERED_S`. Queues of other sources,
`NEIGHBOURS`, have probes only. 2. The next leader is where a message sent after the healing is confirmed. 3. The
kinds are drawn like cards, so that each comes before any comes again. 4. A leader may move at any time: workers that
end by it are started again at the next one. 5. What is sent at a forwarder that a fault has cut off from every
majority is not confirmed before the healing begins.
Not here: the faults (`cluster_faults.py`), the judgement (`checker.py`, `cluster_judge.py`).
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from functools import partial

from .cluster import Cluster
from .cluster_faults import ClusterFaults
from .history import History, PublisherHistory, QueueHistory
from .probes import QUEUE, Probes
from .workload import Progress, Publisher, Worker, start_workers

QUEUES = [f"quorum{number}" for number in range(3)]
CONSUMED = QUEUES[:2]
"""in each round; all of them in one of `ALL_CONSUMED_EACH`: a backlog is there, and does not grow for ever"""
ALL_CONSUMED_EACH = 3
NEIGHBOURS = ["neighbour1", "neighbour2"]
"""each of a source of its own"""
ROUTES = {f"to-{queue}": ("", queue) for queue in QUEUES} | {"to-all": ("everyone", "")}
CONFIRMS_MAX = 4_000
CONFIRMS_DEADLINE_S = 60.0
ANSWERED_S = 60.0
"""a publisher, after the healing; TCP's own retries of what was sent into a cut take several seconds"""
SERVED_S = 60.0
"""a confirm anywhere, after the healing"""
MOVES_MAX = 5
"""of a leader, within a round, before its load has come so far that a fault is made"""


class Rounds:
    """`run` them; `history` and `counts` are for the judge."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._faults = ClusterFaults(cluster)
        self._cards: list[str] = []
        self.probes = Probes(cluster)
        self._neighbours = [Probes(cluster, queue) for queue in NEIGHBOURS]
        self._all_probes = [self.probes, *self._neighbours]
        publishers = [PublisherHistory(f"to-{queue}", (queue,)) for queue in QUEUES]
        publishers.append(PublisherHistory("to-all", tuple(QUEUES)))
        publishers += [each for probes in self._all_probes for each in probes.histories.values()]
        queues = [QueueHistory(queue) for queue in QUEUES]
        queues += [QueueHistory(queue, lane_of=None) for queue in [QUEUE, *NEIGHBOURS]]
        self.history = History({each.name: each for each in publishers}, {each.name: each for each in queues})
        self.counts = Counter(dict.fromkeys(self._faults.kinds, 0))
        self.missing = self._faults.missing
        self._found_s: dict[str, list[float]] = {kind: [] for kind in self._faults.kinds}
        """by kind: from the fault to the first confirm of what was sent after it, anywhere"""
        self.cut_off = 0
        """forwarders that were cut off from every majority, each time"""
        self.moved_by_itself = 0
        self._progress = Progress()
        """of the workers that were started last"""
        self._kinds: dict[int, str] = {}
        """of the fault that was made in an incarnation"""

    def run(self, rounds: int) -> None:
        """The probes run meanwhile, and have ended when it returns."""
        for probes in self._all_probes:
            probes.start()
        try:
            leader = self.probes.first_after(time.monotonic(), SERVED_S).forwarder
            for number in range(rounds):
                leader = self._round(number, leader)
        finally:
            # After a failure, too: who writes down what happened would wait for the workers.
            self._progress.stopping = True
            for probes in self._all_probes:
                probes.ended.set()
            for probes in self._all_probes:
                probes.end()

    def table(self) -> str:
        """A line for each kind: how often, how long until the first confirm, duplicates by it."""
        again = self.duplicates()
        lines = [f"{'fault':<32} {'rounds':>6} {'first confirm, median s':>24} {'worst s':>8} {'duplicates':>10}"]
        for kind, count in self.counts.items():
            found_s = self._found_s[kind] or [0.0]
            lines.append(
                f"{kind:<32} {count:>6} {statistics.median(found_s):>24.2f} {max(found_s):>8.2f} {again[kind]:>10}"
            )
        lines += [f"{kind:<32} {'-':>6} not possible here: {why}" for kind, why in self.missing.items()]
        lines.append(
            f"{'(no fault, a leader moved)':<32} {self.moved_by_itself:>6} {'':>24} {'':>8} {again['none']:>10}"
        )
        lines.append(f"forwarders that were cut off from every majority: {self.cut_off}")
        return "\n".join(lines)

    def duplicates(self) -> Counter[str]:
        """Deliveries that came again after each kind of fault: counted for the incarnation of the one before."""
        found: Counter[str] = Counter()
        for queue in self.history.queues.values():
            seen: dict[tuple[str, int], int] = {}
            for publisher, sequence, _, incarnation in queue.deliveries:
                before = seen.get((publisher, sequence))
                if before is not None:
                    found[self._kinds.get(before, "none")] += 1
                seen[publisher, sequence] = incarnation
        return found

    def _round(self, number: int, leader: str) -> str:
        """The next leader."""
        kind = self._card()
        confirms = self._chance.randint(1, CONFIRMS_MAX)
        lasts_s = self._faults.lasts_s(kind, self._chance)
        leader, progress, workers = self._loaded(leader, confirms)
        cut_off = self._faults.make(kind, leader, self._chance)
        made_s = time.monotonic()
        self.counts[kind] += 1
        self._kinds[self.history.incarnation] = kind
        time.sleep(max(0.0, made_s + lasts_s - time.monotonic()))  # the length of the fault
        healed_s = time.monotonic()
        confirmed = [
            each
            for probes in self._all_probes
            for each in probes.between(made_s, healed_s)
            if each.forwarder in cut_off
        ]
        assert not confirmed, f"{kind}, of leader {leader}: a minority confirms {confirmed}"
        self.cut_off += len(cut_off)

        def end_load() -> None:
            if not progress.stopping:
                progress.stopping = True
                self.history.events.append(f"round {number}: copies took long to count, the load has ended")
                print(self.history.events[-1], flush=True)

        self._faults.heal(kind, end_load)
        whole_s = time.monotonic()
        progress.stopping = True
        after_fault = self.probes.first_after(made_s, SERVED_S)
        self._found_s[kind].append(after_fault.confirmed_s - made_s)
        after_healing = self.probes.first_after(healed_s, SERVED_S)
        for neighbour in self._neighbours:
            neighbour.first_after(healed_s, SERVED_S)
        self._end(workers)
        moment = time.strftime("%H:%M:%S", time.gmtime())
        line = (
            f"{moment} round {number}: {kind}, of leader {leader}, for {lasts_s:.1f} s; first confirm at "
            f"{after_fault.forwarder} {after_fault.confirmed_s - made_s:.2f} s after the fault, at "
            f"{after_healing.forwarder} {after_healing.confirmed_s - healed_s:.2f} s after the healing; all runs "
            f"{whole_s - healed_s:.2f} s, publishers are answered {time.monotonic() - healed_s:.2f} s after it"
        )
        print(line, flush=True)
        self.history.events.append(line)
        return after_healing.forwarder

    def _card(self) -> str:
        if not self._cards:
            self._cards = list(self._faults.kinds)
            self._chance.shuffle(self._cards)
        return self._cards.pop()

    def _loaded(self, leader: str, confirms: int) -> tuple[str, Progress, list[Worker]]:
        """Workers at the leader, when this number of answers has come to them."""
        for _ in range(MOVES_MAX):
            self.history.incarnation += 1
            consumed = CONSUMED if self.history.incarnation % ALL_CONSUMED_EACH else QUEUES
            port, inside = self._cluster.brokers[leader].port, partial(self._cluster.inside, leader)
            progress, workers = start_workers(port, self.history, ROUTES, consumed, inside=inside)
            self._progress = progress
            progress.killed = True  # the leader may move at any time
            deadline_s = time.monotonic() + CONFIRMS_DEADLINE_S
            while progress.confirmed < confirms and all(worker.is_alive() for worker in workers):
                assert time.monotonic() < deadline_s, f"{progress.confirmed} answers, {confirms} were due"
                with progress.news:
                    progress.news.wait(0.1)
            if progress.confirmed >= confirms:
                return leader, progress, workers
            self.moved_by_itself += 1
            self.history.events.append(f"incarnation {self.history.incarnation}: {leader} was the leader no more")
            progress.stopping = True
            self._end(workers)
            leader = self.probes.first_after(time.monotonic(), SERVED_S).forwarder
        raise AssertionError(f"the leader moved {MOVES_MAX} times by itself")

    def _end(self, workers: list[Worker]) -> None:
        """Publishers have their answers, or their connection is gone; consumers cannot know that nothing comes."""
        deadline_s = time.monotonic() + ANSWERED_S
        for worker in workers:
            if isinstance(worker, Publisher):
                worker.join(max(0.0, deadline_s - time.monotonic()))
        waiting = [worker.name for worker in workers if worker.is_alive() and isinstance(worker, Publisher)]
        if waiting:
            self.history.events.append(f"no answer within {ANSWERED_S} s for {waiting}")
        for worker in workers:
            worker.hang_up()
        for worker in workers:
            worker.join(ANSWERED_S)
            assert not worker.is_alive(), worker.name
        assert not waiting, f"no answer within {ANSWERED_S} s of the healing: {waiting}"
