"""How the set of a source changes: which step is next, and what the store's record says after it.

What comes in: the source's record, the set that is desired, who lives. What goes out: one step; records.
Rules: 1. One member at a time, by compare-and-swap on the record: any majority of the set before and any of the set
after have a member in common (Ongaro, "Consensus: Bridging Theory and Practice", 2014, section 4.1). A majority is
more than half of what the record lists, also of an even set on the way. 2. A member is added when it has caught up,
as a learner that counts for nothing. 3. A leader begins a step when an entry of its own epoch is committed, and the
next one when an entry is that follows the step before: so no two steps are under way. (The dissertation lacks the
first half of that; Ongaro added it on the Raft mailing list in 2015.) 4. A leader that is not to be in the set hands
over, when nobody else is to leave. 5. A set grows before it shrinks, by one.
Not here: how a learner catches up, how a source goes from one replica set to another (`leader.py`), when
(`amqpd.cluster`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from amqpd.peers.entry import Vote
from amqpd.replication.commit import majority
from amqpd.replication.take_over import SourceRecord


@dataclass(frozen=True, slots=True)
class Add:
    """The step that adds a learner, which is in the set when it has everything."""

    member: str


@dataclass(frozen=True, slots=True)
class Remove:
    """The step that takes a member out of the set."""

    member: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """The step that makes a member, which has everything, the leader."""

    member: str


@dataclass(frozen=True, slots=True)
class Wait:
    """The step when nothing can be done now, with the reason."""

    reason: str


SetStep = Add | Remove | HandOver | Wait


def next_step(
    record: SourceRecord,
    members: Collection[str],
    leader: str,
    counts: Callable[[str], bool],
    lives: Callable[[str], bool],
    has_lease: Callable[[str], bool] = lambda _: True,
) -> SetStep | None:
    """For the leader of this record, towards this set (empty: the one that it has) and leader (empty: any of it).
    None: nothing is left to be done. `counts`: this member has everything that is committed, and a connection to it
    stands;
    `lives`: a connection to it stands; `has_lease`: the metadata store has it as a member."""
    me, now = record.leader.forwarder, record.members
    desired = tuple(members) or now
    if leader and leader not in desired:
        return Wait(f"{leader} is to be the leader, and is not in the set")
    missing = sorted(name for name in desired if name not in now)
    leaving = sorted(
        (name for name in now if name not in desired and name != me), key=lambda name: (counts(name), name)
    )
    # By one larger than it is to be at most; smaller only if it is to be.
    if leaving and (not missing or len(now) > len(desired)):
        return _remove(record, leaving, counts)
    if missing:
        name = next(filter(lives, missing), None)
        return Add(name) if name is not None else Wait(f"{missing[0]} does not live")

    def may_lead(name: str) -> bool:
        return counts(name) and has_lease(name)

    goal = leader or ("" if me in desired else next(filter(may_lead, (name for name in now if name != me)), ""))
    if not goal and me not in desired:
        return Wait(f"no other member of the set has everything by now, so {me} stays the leader")
    if not goal or goal == me:
        return None
    if not counts(goal):
        return Wait(f"{goal} does not have everything by now")
    return HandOver(goal) if has_lease(goal) else Wait(f"{goal} has no lease in the metadata store now")


def _remove(record: SourceRecord, leaving: list[str], counts: Callable[[str], bool]) -> SetStep:
    """The first of these, if those that are left go on."""
    left = [name for name in record.members if name != leaving[0]]
    count = sum(name == record.leader.forwarder or counts(name) for name in left)
    if count < majority(len(left)):
        return Wait(f"without {leaving[0]} only {count} of {len(left)} copies would have everything")
    return Remove(leaving[0])


def grown(record: SourceRecord, member: str, generation: int) -> SourceRecord:
    """With this member, whose disk of this generation has caught up. Raises ValueError for one that is in it."""
    if member in record.members:
        raise ValueError(f"{member} is one of {record.members}")
    pairs = sorted([*zip(record.members, record.generations, strict=True), (member, generation)])
    return _with(record, pairs)


def shrunk(record: SourceRecord, member: str) -> SourceRecord:
    """Without this member. Raises ValueError for the leader, and for one that is not in it."""
    if member not in record.members or member == record.leader.forwarder:
        raise ValueError(f"{member} cannot be taken out of {record.members}, leader {record.leader.forwarder}")
    return _with(record, [each for each in zip(record.members, record.generations, strict=True) if each[0] != member])


def handed_over(record: SourceRecord, above: int = 0) -> SourceRecord:
    """Without a leader: any member may take over, above this epoch, or `above`."""
    return replace(record, leader=Vote(max(record.leader.epoch, above), "", 0))


def forced(record: SourceRecord, survivors: Collection[str]) -> SourceRecord:
    """A majority is lost for good, an operator says: the survivors go on with what they have, above the epoch of the
    lost leader. What was confirmed, and is on none of their disks, is lost. Raises ValueError for survivors that are
    not of the set, or none."""
    strangers = sorted(set(survivors) - set(record.members))
    if strangers or not survivors:
        raise ValueError(f"{', '.join(strangers) or 'nobody'} is not of the set {', '.join(record.members)}")
    pairs = [each for each in zip(record.members, record.generations, strict=True) if each[0] in survivors]
    # An epoch of its own, so that it can be told from one that the leader handed over.
    return replace(_with(handed_over(record), pairs), given_up=max(record.leader.epoch, 1))


def _with(record: SourceRecord, pairs: list[tuple[str, int]]) -> SourceRecord:
    names, generations = tuple(name for name, _ in pairs), tuple(generation for _, generation in pairs)
    return replace(record, members=names, generations=generations)
