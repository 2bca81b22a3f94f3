"""Leaders that a failover piled up on one node go back to others by themselves, slowly.

What comes in: the records, who lives, which members have everything, what operators ask for; the time. What goes out:
now and then a desired set for one source, as an operator would put it.
Rules: 1. One node moves, the one with the most leaders, and one source at a time: the budget is the cluster's. Each
move makes the clients of that source's queues connect again, so there are at most `MOVES_A_MINUTE`. 2. Only what came
to this node when its leader was lost or had ended is moved: a queue's leader is where it was declared, or where an
operator wanted it. 3. Nothing moves while something is desired, while a member lacks something, or before the cluster
has been as it is for `SETTLED_S`: a node that is started again is no reason to move twice. 4. Nothing moves unless a
node leads more than its share and a tenth; the target has everything, and leads at least two fewer afterwards than
this node before.
Not here: carrying it out (`set_changes.py`), what operators ask for (`moves.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from amqpd.cluster.placement import EVEN_SLACK, even_bound, ranked
from amqpd.cluster.records import DesiredSetRecord
from amqpd.cluster.shell import Shell
from amqpd.replication.take_over import SourceRecord

MOVES_A_MINUTE = 4
SETTLED_S = 60.0
TAKEN_BACK_S = 60.0
"""for a move to be carried out"""
LOOK_S = 5.0


def next_move(
    name: str,
    records: Mapping[int, SourceRecord],
    living: Collection[str],
    candidates: Iterable[int],
    has_all: Callable[[str, int], bool],
) -> tuple[int, str] | None:
    """A source of this node and its next leader; None: all is even enough, or another node is to move first.
    `has_all`: a member has everything of a source."""
    counted = Counter(record.leader.forwarder for record in records.values())
    loads = {each: counted[each] for each in living}
    if name not in loads or max(sorted(loads), key=lambda each: loads[each]) != name:
        return None
    if loads[name] <= even_bound(sum(loads.values()), len(loads), EVEN_SLACK):
        return None
    found = [
        (loads[member], ranked(source, records[source].members).index(member), source, member)
        for source in candidates
        if records[source].leader.forwarder == name
        for member in records[source].members
        if member in loads and loads[member] + 2 <= loads[name] and has_all(member, source)
    ]
    return min(found)[2:] if found else None


class Spreading:
    """Gives the leaders that a failover piled up on one node back to other nodes, one source at a time."""

    def __init__(self, name: str, shell: Shell) -> None:
        self._name = name
        self._shell = shell
        self._came: set[int] = set()
        """sources whose leader was another process, which was lost or ended"""
        self._living: frozenset[str] = frozenset()
        self._since_s = self._looked_s = 0.0
        """when the members became these"""
        self._asked: tuple[int, str, float] | None = None
        """the last move, and when it was asked for"""

    def took_over(self, source: int, *, was_led: bool, desired: bool) -> None:
        """This node leads it from now on. `was_led`: by another process, or another start of this one."""
        (self._came.add if was_led and not desired else self._came.discard)(source)

    def look(
        self,
        records: Mapping[int, SourceRecord],
        living: Collection[str],
        desired_sets: Mapping[int, DesiredSetRecord],
        led: Collection[int],
        has_all: Callable[[str, int], bool],
        now_s: float,
    ) -> tuple[int, str] | None:
        """Now and then. What is asked for now; None: nothing."""
        if frozenset(living) != self._living:
            self._living, self._since_s = frozenset(living), now_s
        if now_s < self._looked_s + LOOK_S:
            return None
        self._looked_s = now_s
        self._came.intersection_update(led)
        if desired_sets:
            self._take_back(desired_sets, now_s)
            return None
        again_s = self._asked[2] + 60 / MOVES_A_MINUTE if self._asked is not None else now_s
        if now_s < max(self._since_s + SETTLED_S, again_s):
            return None
        if not all(has_all(member, source) for source in led for member in records[source].members):
            return None
        move = next_move(self._name, records, living, sorted(self._came), has_all)
        if move is not None:
            self._asked = (*move, now_s)
            self._shell.put_desired_set(DesiredSetRecord(move[0], (), move[1]))
        return move

    def _take_back(self, desired_sets: Mapping[int, DesiredSetRecord], now_s: float) -> None:
        """What was asked for here and cannot be had: it would keep all others from moving."""
        if self._asked is None or now_s < self._asked[2] + TAKEN_BACK_S:
            return
        desired_set = desired_sets.get(self._asked[0])
        if desired_set is not None and desired_set.leader == self._asked[1] and not desired_set.members:
            self._shell.drop_desired_set(desired_set)
