"""Leaders that operators ask for and that did not take over when they were asked to: asked again later.

What comes in: sources that this forwarder has taken over, with the leader that they had; desired sets; the time. What
goes out: why a source is not handed over now.
Rules: 1. A source that was handed over, or whose leader was the one that is asked for, and that this forwarder has
taken over in its place, is not handed over again for `AGAIN_S`, then for twice that, and so on: each time its clients
are interrupted. 2. Forgotten with the desired set: who takes it back and puts it again has it tried at once. 3. Known
to this forwarder only: the next leader may try once, and then waits, too.
Not here: whether the desired leader has everything (`replication/set_change.py`), the others' turn (`succession.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amqpd.cluster.records import DesiredSetRecord
from amqpd.peers.entry import Vote

AGAIN_S = 30.0
"""after the first failure"""
AGAIN_S_MAX = 960.0


@dataclass(frozen=True, slots=True)
class _Failure:
    leader: str
    """that was asked for; empty: any of the set"""
    after_s: float
    until_s: float


class DesiredLeaders:
    """The failed hand-overs from one node to leaders that operators ask for, with the time before which each is
    not tried again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._failures: dict[int, _Failure] = {}

    def desired_sets_are(self, desired_sets: Mapping[int, DesiredSetRecord]) -> None:
        """Those that there are."""
        self._failures = {
            source: each
            for source, each in self._failures.items()
            if source in desired_sets and desired_sets[source].leader == each.leader
        }

    def took_over(self, desired_set: DesiredSetRecord, before: Vote, now_s: float) -> None:
        """This forwarder did, from this leader."""
        handed_over = before.epoch > 0 and not before.forwarder
        mine = (
            desired_set.leader == self._name
            if desired_set.leader
            else not desired_set.members or self._name in desired_set.members
        )
        if mine:
            self._failures.pop(desired_set.source, None)
        elif handed_over or before.forwarder == desired_set.leader:
            last = self._failures.get(desired_set.source)
            after_s = (
                AGAIN_S if last is None or last.leader != desired_set.leader else min(2 * last.after_s, AGAIN_S_MAX)
            )
            self._failures[desired_set.source] = _Failure(desired_set.leader, after_s, now_s + after_s)

    def waits(self, desired_set: DesiredSetRecord, now_s: float) -> str:
        """Why it is not to be handed over now; empty: it is."""
        each = self._failures.get(desired_set.source)
        if each is None or each.leader != desired_set.leader or each.until_s <= now_s:
            return ""
        who = each.leader or "no other member"
        return f"{who} could not take it over when asked, and is asked again {each.after_s:.0f} s after that"
