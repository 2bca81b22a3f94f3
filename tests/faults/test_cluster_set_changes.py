"""Under load a member of the set is replaced, the leader moves and comes back, and a leader is taken out of its set.

What is verified, with four real processes: nothing confirmed is lost, nothing refused comes out, the order of each
publisher is kept; a change of the set ends nobody's connection; and where the leader moves, publishers have an answer
for everything that they sent: what was open is settled first, and what comes afterwards is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import trio

from amqpd.cluster.records import PREFIX, DesiredSetRecord
from amqpd.cluster.roster import Roster
from amqpd.cluster.swaps import Swaps
from amqpd.config import Settings

from .checker import check
from .cluster import Cluster
from .drain import drain, look
from .history import History, PublisherHistory, QueueHistory
from .test_cluster_kill import ALL, CONSUMED, QUEUES, ROUTES
from .workload import Worker, start_workers

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

FULFILLED_S = 60.0
BETWEEN_LOOKS_S = 0.05
CONFIRMS = 1_500
ANSWERED_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, names="abcd", environment={"AMQPD_FAST_TAKEOVER": "true"})
    try:
        cluster.start()
        yield cluster
    except BaseException:
        print(cluster.log)
        raise
    finally:
        cluster.close()


class Operator:
    """Who asks, and looks at what became of it."""

    def __init__(self, cluster: Cluster) -> None:
        self._settings = Settings(cluster_store=f"etcd://{cluster.etcds[0].endpoint}/test")

    def _with_store(self, use: Callable[[Swaps, Roster], object]) -> Roster:
        from amqpd.process.cluster_store import store_of

        async def using() -> Roster:
            roster = Roster()
            async with store_of(self._settings) as store:
                wanted = use(Swaps(store), roster)
                if isinstance(wanted, DesiredSetRecord):
                    assert await Swaps(store).swap(wanted) is not None
                roster.load(await store.range(PREFIX))
            return roster

        return trio.run(using)

    def look(self) -> Roster:
        return self._with_store(lambda *_: None)

    def until(self, holds: Callable[[Roster], object]) -> Roster:
        deadline_s = time.monotonic() + FULFILLED_S
        while not holds(roster := self.look()):
            assert time.monotonic() < deadline_s, (roster.members, roster.desired_sets, roster.records)
            time.sleep(BETWEEN_LOOKS_S)  # the store tells an operator's command nothing by itself
        return roster

    def desired_set(self, source: int, members: Iterable[str] = (), leader: str = "") -> tuple[str, str]:
        """Fulfilled when it returns: the members and the leader, as tests call them."""
        full = {name.partition("@")[0]: name for name in self.look().known}
        desired = DesiredSetRecord(source, tuple(sorted(full[name] for name in members)), full.get(leader, ""))
        self._with_store(lambda *_: desired)
        record = self.until(lambda roster: not roster.desired_sets).records[source]
        return "".join(name.partition("@")[0] for name in record.members), record.leader.forwarder.partition("@")[0]


class Load:
    """Publishers, whose connections are to stay, and consumers, which are cancelled when the leader moves."""

    def __init__(self, port: int, history: History) -> None:
        history.incarnation += 1
        self.publishing, publishers = start_workers(port, history, ROUTES, [])
        self.consuming, consumers = start_workers(port, history, {}, CONSUMED)
        self.consuming.killed = True
        self._workers: list[Worker] = [*publishers, *consumers]
        self.more()

    def more(self) -> None:
        self.publishing.wait(self.publishing.confirmed + CONFIRMS, ANSWERED_S)

    def end(self) -> None:
        for progress in (self.publishing, self.consuming):
            progress.stopping = True
        deadline_s = time.monotonic() + ANSWERED_S
        for worker in self._workers[: len(ROUTES)]:
            worker.join(max(0.0, deadline_s - time.monotonic()))
            assert not worker.is_alive(), f"{worker.name} waits for answers"
        for worker in self._workers[len(ROUTES) :]:
            worker.hang_up()
            worker.join(ANSWERED_S)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_set_changes_and_its_leader_moves_under_load(cluster: Cluster) -> None:
    publishers = {queue: PublisherHistory(f"to-{queue}", (queue,)) for queue in QUEUES}
    everyone = PublisherHistory("to-all", tuple(QUEUES))
    history = History(
        {publisher.name: publisher for publisher in [*publishers.values(), everyone]},
        {queue: QueueHistory(queue) for queue in QUEUES},
    )
    operator = Operator(cluster)
    operator.until(lambda roster: len(roster.members) == len(cluster.brokers))
    cluster.declare_quorum("a", ALL, QUEUES)
    assert cluster.leader_of(ALL) == "a"
    # A declaration that was refused elsewhere, before the members had met, may leave a source of its own.
    [record] = [each for each in operator.look().records.values() if each.leader.forwarder.startswith("a@")]
    source, epoch = record.source, record.leader.epoch
    operator.desired_set(source, "abc")
    try:
        load = Load(cluster.brokers["a"].port, history)
        assert operator.desired_set(source, "acd") == ("acd", "a")
        load.more()
        assert operator.look().records[source].leader.epoch == epoch, "it was the leader all the time"
        # To the new member, and back.
        for leader in ("d", "a"):
            assert operator.desired_set(source, leader=leader) == ("acd", leader)
            load.end()
            assert cluster.leader_of(ALL) == leader
            load = Load(cluster.brokers[leader].port, history)
        # The old member comes again, in place of the leader.
        members, leader = operator.desired_set(source, "bcd")
        assert members == "bcd"
        load.end()
        assert cluster.leader_of(ALL) == leader
        load = Load(cluster.brokers[leader].port, history)
        load.end()
        cluster.brokers["a"].kill()  # nothing rests on it
        drain(cluster.brokers[leader].port, history)
        verdict = check(history, acks_are_durable=True)
        print(verdict.text())
        assert verdict.valid, verdict.text()
        left = look(cluster.brokers[leader].port, list(history.queues))
        assert not any(left.values()), f"came back after the drain: {left}"
    except BaseException:
        print(history.text())
        raise
