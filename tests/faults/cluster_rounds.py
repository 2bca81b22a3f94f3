"""Rounds of load and faults on a cluster, and what came of them.

What comes in: a cluster on machines, a seed, how many rounds. What goes out: a history of all clients, a line for
each round, counts of the faults made.
Rules: 1. In each round publishers and consumers run at the home, a fault is made, lasts, and is healed; then every
publisher must end, or have an answer for everything that it sent, within `ANSWERED_S`. 2. The next home is where a
message sent after the healing is confirmed. 3. The kinds are drawn like cards, so that each comes before any comes
again. 4. A home may move at any time: workers that end by it are started again at the next one.
Not here: the faults (`network_faults.py`), the judgement (`checker.py`).
"""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import partial

from .cluster import Cluster
from .history import History, PublisherHistory, QueueHistory
from .network_faults import NetworkFaults
from .probes import QUEUE, Probes
from .workload import Progress, Publisher, Worker, start_workers

QUEUES = [f"quorum{number}" for number in range(3)]
CONSUMED = QUEUES[:2]
ROUTES = {f"to-{queue}": ("", queue) for queue in QUEUES} | {"to-all": ("everyone", "")}
CONFIRMS_MAX = 4_000
CONFIRMS_DEADLINE_S = 60.0
ANSWERED_S = 60.0
"""a publisher, after the healing; TCP's own retries of what was sent into a cut take several seconds"""
SERVED_S = 60.0
"""a confirm anywhere, after the healing"""
MOVES_MAX = 5
"""of a home, within a round, before its load has come so far that a fault is made"""


class Rounds:
    """`run` them; `history` and `counts` are for the judge."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._faults = NetworkFaults(cluster)
        self._cards: list[str] = []
        self.probes = Probes(cluster)
        publishers = [PublisherHistory(f"to-{queue}", (queue,)) for queue in QUEUES]
        publishers += [PublisherHistory("to-all", tuple(QUEUES)), *self.probes.histories.values()]
        queues = [*(QueueHistory(queue) for queue in QUEUES), QueueHistory(QUEUE, lane_of=None)]
        self.history = History({each.name: each for each in publishers}, {each.name: each for each in queues})
        self.counts = Counter(dict.fromkeys(self._faults.kinds, 0))
        self.moved_by_itself = 0
        self._kinds: dict[int, str] = {}
        """of the fault that was made in a life"""

    def run(self, rounds: int) -> None:
        """The probes run meanwhile, and have ended when it returns."""
        self.probes.start()
        try:
            home = self.probes.first_after(time.monotonic(), SERVED_S).forwarder
            for number in range(rounds):
                home = self._round(number, home)
        finally:
            self.probes.end()

    def duplicates(self) -> Counter[str]:
        """Deliveries that came again after each kind of fault: counted for the life of the one before."""
        found: Counter[str] = Counter()
        for queue in self.history.queues.values():
            seen: dict[tuple[str, int], int] = {}
            for publisher, sequence, _, life in queue.deliveries:
                before = seen.get((publisher, sequence))
                if before is not None:
                    found[self._kinds.get(before, "none")] += 1
                seen[publisher, sequence] = life
        return found

    def _round(self, number: int, home: str) -> str:
        """The next home."""
        kind = self._card()
        confirms = self._chance.randint(1, CONFIRMS_MAX)
        lasts_s = self._faults.lasts_s(kind, self._chance)
        home, progress, workers = self._loaded(home, confirms)
        self._faults.make(kind, home, self._chance)
        made_s = time.monotonic()
        self.counts[kind] += 1
        self._kinds[self.history.life] = kind
        time.sleep(max(0.0, made_s + lasts_s - time.monotonic()))  # the length of the fault
        healed_s = time.monotonic()
        self._faults.heal()
        whole_s = time.monotonic()
        progress.stopping = True
        after_fault = self.probes.first_after(made_s, SERVED_S)
        after_healing = self.probes.first_after(healed_s, SERVED_S)
        self._end(workers)
        moment = time.strftime("%H:%M:%S", time.gmtime())
        line = (
            f"{moment} round {number}: {kind}, of home {home}, for {lasts_s:.1f} s; first confirm at "
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

    def _loaded(self, home: str, confirms: int) -> tuple[str, Progress, list[Worker]]:
        """Workers at the home, when this number of answers has come to them."""
        for _ in range(MOVES_MAX):
            self.history.life += 1
            port, inside = self._cluster.brokers[home].port, partial(self._cluster.inside, home)
            progress, workers = start_workers(port, self.history, ROUTES, CONSUMED, inside=inside)
            progress.killed = True  # the home may move at any time
            deadline_s = time.monotonic() + CONFIRMS_DEADLINE_S
            while progress.confirmed < confirms and all(worker.is_alive() for worker in workers):
                assert time.monotonic() < deadline_s, f"{progress.confirmed} answers, {confirms} were due"
                with progress.news:
                    progress.news.wait(0.1)
            if progress.confirmed >= confirms:
                return home, progress, workers
            self.moved_by_itself += 1
            self.history.events.append(f"life {self.history.life}: {home} was the home no more")
            progress.stopping = True
            self._end(workers)
            home = self.probes.first_after(time.monotonic(), SERVED_S).forwarder
        raise AssertionError(f"the home moved {MOVES_MAX} times by itself")

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
