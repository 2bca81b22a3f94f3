"""Carries out what operators ask of the sources that this forwarder leads: another set, another leader.

What comes in: desired sets; the sources; the time. What goes out: swaps of records, sources that go to another
replica set or are handed over; desired sets that are fulfilled, or why they wait.
Rules: 1. Nothing of it is kept but what the store has: a leader that takes over goes on with what the record says by
then. 2. A source is in the replica set of its record's set, beside it the one that learns; only that it follows the
record makes it move. 3. One step of a source at a time, the next one when the step before is committed. A swap of
unknown outcome that was carried out after all makes the next one fail, since the revision is another one. 4. A source
is handed over when everything that clients handed in is committed, and the store answers: it is asked before its
queues stop. If it does not answer afterwards, this forwarder takes it over again. 5. At most `CHANGES_MAX` at once.
6. Who was asked to be the leader and could not is asked again later, after `LEADER_AGAIN_S`, then twice that, and so
on: each time the source's clients are interrupted. That is forgotten with the desired set, and known to this node
only.
7. A learner that has voted for a higher epoch follows nobody below that: the leader hands over to itself, above it.
Not here: which step is next (`replication/set_change.py`), replica sets (`led_sources.py`), who takes over
(`succession.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from amqpd.cluster.led_replica_set import SourceLeadership
from amqpd.cluster.led_sources import HANDED_OVER, LedSources
from amqpd.cluster.records import DesiredSetRecord
from amqpd.cluster.shell import Shell
from amqpd.journal.buffer import JournalBuffer
from amqpd.peers.entry import Vote
from amqpd.replication.set_change import (
    Add,
    HandOver,
    Remove,
    SetStep,
    Wait,
    grown,
    handed_over,
    next_step,
    shrunk,
)
from amqpd.replication.take_over import SourceRecord

CHANGES_MAX = 4
"""sources of this forwarder that change at the same time: all of each is sent to somebody"""
SLOT_S = 30.0
"""A step that takes longer, of one that learns slowly or stands still, does not count among those: others go on."""
SLOW_MAX = 16
"""of these and those together"""
ANSWER_S = 40.0
"""The store may never answer. Longer than a swap takes (`swaps.SWAP_S`)."""
AGAIN_S = 0.5
"""after a swap that another one got ahead of: until then the watch has told of that"""
REASON_S = 1.0
"""so long a desired set waits before the store is told why, and as long again until it is told of another reason"""
STOPPED_S = 2.0
"""for all that was handed in to be committed, while the queues stand still; else those clients have to ask again"""
CONTRADICTED_S = 60.0
"""until one that has something else committed may learn again: it drops its copy meanwhile (`leftovers.py`)"""
LEADER_AGAIN_S = 30.0
"""after the first failure"""
LEADER_AGAIN_S_MAX = 960.0


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
                LEADER_AGAIN_S
                if last is None or last.leader != desired_set.leader
                else min(2 * last.after_s, LEADER_AGAIN_S_MAX)
            )
            self._failures[desired_set.source] = _Failure(desired_set.leader, after_s, now_s + after_s)

    def waits(self, desired_set: DesiredSetRecord, now_s: float) -> str:
        """Why it is not to be handed over now; empty: it is."""
        each = self._failures.get(desired_set.source)
        if each is None or each.leader != desired_set.leader or each.until_s <= now_s:
            return ""
        who = each.leader or "no other member"
        return f"{who} could not take it over when asked, and is asked again {each.after_s:.0f} s after that"


@dataclass(slots=True)
class _Change:
    """The change of one source's replica set or leader, while it is carried out."""

    own: SourceLeadership
    not_before_s: float = 0.0
    """the store's answer is waited for, or it is tried again then"""
    stopped: int = 0
    """its queues stand still since this transaction; 0: they do not"""
    counts_until_s: float = 0.0
    """among `CHANGES_MAX`: its step is as young as that"""
    stopped_until_s: float = 0.0
    above: int = 0
    """this leader is to go on in an epoch above this one; 0: it is to be another leader"""


class SetChanges:
    """Carries out the desired sets of the sources that one node leads: other replica sets, other leaders."""

    def __init__(self, name: str, shell: Shell, journal: JournalBuffer, led_sources: LedSources) -> None:
        self._shell = shell
        self._journal = journal
        self._led_sources = led_sources
        self.desired_sets: Mapping[int, DesiredSetRecord] = {}
        """as the store had them last, by source"""
        self.members: Collection[str] = ()
        """forwarders with a lease in the store"""
        self._desired_leaders = DesiredLeaders(name)
        self.take_over: Callable[[SourceRecord], None] = lambda record: None
        """by this forwarder, at once"""
        self.handing: dict[int, float] = {}
        """sources that are just handed over, not to be taken over here; until when the store is waited for"""
        self._changing: dict[int, _Change] = {}
        self._to_itself: dict[int, Vote] = {}
        """what this forwarder has handed over to itself last, by source"""
        self._waits: dict[int, tuple[str, float]] = {}
        """why a desired set waits, and when the store may be told"""
        self._refused: dict[tuple[int, str], float] = {}
        """sources and members that cannot learn before then"""

    def beat(self) -> None:
        """Some twenty times in a lease."""
        sources, now_s = self._led_sources.sources, self._shell.now_s
        self._changing = {source: each for source, each in self._changing.items() if sources.get(source) is each.own}
        self.handing = {source: until_s for source, until_s in self.handing.items() if until_s > now_s}
        self._waits = {source: each for source, each in self._waits.items() if source in self.desired_sets}
        self._refused = {each: until_s for each, until_s in self._refused.items() if until_s > now_s}
        self._desired_leaders.desired_sets_are(self.desired_sets)
        for source in list(sources):
            self._look(source)

    def took_over(self, source: int, before: Vote) -> None:
        """This forwarder is its leader now, after this one."""
        desired_set = self.desired_sets.get(source)
        if self._to_itself.pop(source, None) != before and desired_set is not None:
            self._desired_leaders.took_over(desired_set, before, self._shell.now_s)

    def stops(self, source: int) -> bool:
        """Its queues stand still, to be handed over."""
        return source in self._changing and self._changing[source].stopped > 0

    def stored(self) -> None:
        """More transactions are on the own disk: none is on its way now."""
        for source in list(self._changing):
            self._look(source)

    def _look(self, source: int) -> None:
        own, desired_set = self._led_sources.sources.get(source), self.desired_sets.get(source)
        if own is None:
            return
        if not own.serving or own.moved:
            if desired_set is not None:
                self._tell(source, desired_set, "too few of its copies answer")
            return
        if desired_set is None and own.replica_set.key == (own.record.members, ()) and source not in self._changing:
            return
        change = self._changing.get(source)
        if change is None or change.own is not own:
            if self._is_full():
                if desired_set is not None:
                    self._tell(source, desired_set, "waits for other changes")
                return
            change = self._changing[source] = _Change(own, counts_until_s=self._shell.now_s + SLOT_S)
        if change.stopped:
            self._finish(source, change)
        elif change.not_before_s <= self._shell.now_s:
            self._step(source, change, desired_set)

    def _is_full(self) -> bool:
        now_s, changing = self._shell.now_s, self._changing.values()
        return len(changing) >= SLOW_MAX or sum(each.counts_until_s > now_s for each in changing) >= CHANGES_MAX

    def _step(self, source: int, change: _Change, desired_set: DesiredSetRecord | None) -> None:
        own = change.own
        step = self._next(source, own, desired_set) if desired_set is not None else None
        learners = (step.member,) if isinstance(step, Add) else ()
        if own.replica_set.key != (own.record.members, learners):
            if self._led_sources.between:
                if isinstance(step, Add):
                    self._shell.log("member_learns", source=source, member=step.member)
                self._led_sources.move(source, (own.record.members, learners))
        elif isinstance(step, Add):
            self._add(source, change, step.member)
        elif isinstance(step, Remove):
            self._swap(source, change, shrunk(own.record, step.member), "member_removed", step.member)
        elif isinstance(step, HandOver):
            change.above = 0  # for a member that this desired set does not need any more, say
            self._swap(source, change, own.record, "", "", lambda: self._stop(source, change))
        elif desired_set is None or step is not None:
            del self._changing[source]
        else:
            change.not_before_s = self._shell.now_s + AGAIN_S
            self._shell.drop_desired_set(desired_set)
        if desired_set is not None and step is not None:
            self._tell(source, desired_set, _reason(step))

    def _next(self, source: int, own: SourceLeadership, desired_set: DesiredSetRecord) -> SetStep | None:
        generations = self._led_sources.generations

        def counts(member: str) -> bool:
            return member in own.replica_set.members and own.replica_set.has_all(member, source, self._shell.now_s)

        def may_learn(member: str) -> bool:
            return member in generations and (source, member) not in self._refused

        step = next_step(
            own.record, desired_set.members, desired_set.leader, counts, may_learn, self.members.__contains__
        )
        if isinstance(step, HandOver) and (reason := self._desired_leaders.waits(desired_set, self._shell.now_s)):
            return Wait(reason)
        if isinstance(step, Wait):
            refused = [member for of, member in self._refused if of == source and member in desired_set.members]
            if refused:
                return Wait(f"{refused[0]} has something else of it, which it has to drop before")
        return step

    def _add(self, source: int, change: _Change, member: str) -> None:
        own, leader = change.own, change.own.replica_set.leader
        if (member, source) in self._led_sources.contradicting:
            self._refused[source, member] = self._shell.now_s + CONTRADICTED_S
            return
        if source in leader.outbid:
            change.above = leader.outbid[source]
            self._swap(source, change, own.record, "", "", lambda: self._stop(source, change))
            return
        peer = leader.peers.get(member)
        # Who answered before the record became this one may have dropped its copy since (`leftovers.py`).
        if peer is not None and peer.number >= own.known_at and source in leader.admissible(member):
            generation = self._led_sources.generations[member]
            self._swap(source, change, grown(own.record, member, generation), "member_added", member)

    def _swap(
        self,
        source: int,
        change: _Change,
        record: SourceRecord,
        event: str,
        member: str,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        change.not_before_s = change.counts_until_s = self._shell.now_s + ANSWER_S

        def answered(found: SourceRecord | None) -> None:
            change.not_before_s = self._shell.now_s + (AGAIN_S if found is None else 0)
            change.counts_until_s = self._shell.now_s + SLOT_S
            if found is None or self._led_sources.sources.get(source) is not change.own:
                return
            self._led_sources.note_record(source, found)
            if event:
                self._shell.log(event, source=source, member=member, members=list(found.members))
            then()

        self._shell.swap(record, answered)

    # Another leader

    def _stop(self, source: int, change: _Change) -> None:
        """The store answers, and has this leader. From now on nothing comes into the queues, or out of them."""
        if self._changing.get(source) is not change:
            return
        self._shell.stops(source)
        change.stopped = self._journal.index
        change.stopped_until_s = self._shell.now_s + STOPPED_S
        change.own.lane.force()

    def _finish(self, source: int, change: _Change) -> None:
        own = change.own
        if own.replica_set.leader.committed_of(source) >= change.stopped:
            del self._changing[source]
            self.handing[source] = self._shell.now_s + ANSWER_S
            self._led_sources.end(source, HANDED_OVER, settled=True)
            # Without an answer it is taken over again, here or elsewhere, as the record says then.
            above = change.above
            self._shell.swap(
                handed_over(own.record, above), lambda found: self._handed(source, found if above else None)
            )
        elif change.stopped_until_s <= self._shell.now_s:
            del self._changing[source]
            self._led_sources.end(source, "what was under way was not committed in time to be handed over")

    def _handed(self, source: int, mine: SourceRecord | None) -> None:
        """`mine`: what is in the store now, for this forwarder to take over."""
        self.handing.pop(source, None)
        if mine is not None:
            self._to_itself[source] = mine.leader
            self.take_over(mine)

    # Why it waits

    def _tell(self, source: int, desired_set: DesiredSetRecord, reason: str) -> None:
        if reason == desired_set.reason:
            self._waits.pop(source, None)
            return
        before, at_s = self._waits.get(source, ("", 0.0))
        if before != reason:
            self._waits[source] = reason, max(at_s, self._shell.now_s + REASON_S)
        elif at_s <= self._shell.now_s:
            self._waits[source] = reason, self._shell.now_s + ANSWER_S
            self._shell.put_desired_set(replace(desired_set, reason=reason))


def _reason(step: SetStep) -> str:
    """For the operator."""
    if isinstance(step, Wait):
        return step.reason
    if isinstance(step, Add):
        return f"{step.member} is being caught up"
    return ""
