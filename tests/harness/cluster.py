"""A cluster in which a test says what the node is told of the others; until then it is alone."""

from __future__ import annotations

from collections.abc import Callable

from amqpd.node.cluster import LOCAL, Answer, Cluster, WantedSource


def _refuse(wanted: WantedSource, answer: Answer) -> None:
    answer(False)


class ClusterByHand(Cluster):
    """Each attribute is an answer."""

    def __init__(self, node: str = "") -> None:
        super().__init__(node)
        self.replicated = False
        self.process: int | None = None
        """its incarnation"""
        self.members: Callable[[str], bool] = lambda name: True
        self.leaders: Callable[[int], str] = lambda source: ""
        self.moving: set[int] = set()
        """sources"""
        self.lease = True
        self.isolated = ""
        self.cut_off = 0
        self.choose: Callable[[WantedSource], int] = lambda wanted: LOCAL
        self.want: Callable[[WantedSource, Answer], None] = _refuse
        self.with_unknown_queues: list[int] = []
        self.with_queues: list[str] = []

    @property
    def incarnation(self) -> int | None:
        return self.process

    @property
    def replicates(self) -> bool:
        return self.replicated

    def is_member(self, node: str) -> bool:
        return self.members(node)

    def leader_of(self, source: int) -> str:
        return self.leaders(source)

    def is_moving(self, source: int) -> bool:
        return source in self.moving

    def holds_lease(self, source: int) -> bool:
        return self.lease

    def isolation(self) -> str:
        return self.isolated

    def cut_off_count(self) -> int:
        return self.cut_off

    def source_for(self, wanted: WantedSource) -> int:
        return self.choose(wanted)

    def want_source(self, wanted: WantedSource, answer: Answer) -> None:
        self.want(wanted, answer)

    def report_unknown_queues(self, source: int) -> None:
        self.with_unknown_queues.append(source)

    def report_remote_queue(self, node: str) -> None:
        self.with_queues.append(node)
