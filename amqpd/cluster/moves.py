"""What operators ask to be changed, as the members and the leader that each source is to have.

What comes in: members that live, the sources' records, what is asked of them. What goes out: for each source that is
to change, an `Aim`; or why it cannot be.
Rules: 1. A pure function of what comes in: every process finds the same. 2. As few changes as there can be: a
node gives away only what it has above its bound. Where the bound is one more than its share rounded up, or less, that
is the share rounded up: with a handful of sources all nodes have the same number. 3. A change never puts more copies
of a source where they fail together. 4. A source whose leader does not live is about to be taken over, and is left
out.
Not here: how a source gets there, one step after the other, and who asks (`amqpd/commands/quorum.py`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from amqpd.cluster.placement import EVEN_SLACK, bound_of, even_bound, next_member, ranked
from amqpd.cluster.records import DesiredSetRecord, MemberRecord
from amqpd.replication.take_over import SourceRecord


class Aim(NamedTuple):
    """The members and the leader that one source is to have."""

    members: tuple[str, ...]
    leader: str


class MoveImpossible(Exception):
    """The change that an operator asks for cannot be made; the text is one sentence that says why."""


def aim_of(record: SourceRecord, desired_set: DesiredSetRecord | None = None) -> Aim:
    """As it is, or as it is asked for already."""
    members, leader = record.members, record.leader.forwarder
    if desired_set is not None:
        members, leader = desired_set.members or members, desired_set.leader or leader
    return Aim(tuple(sorted(members)), leader)


def desired_set_of(aim: Aim, record: SourceRecord, desired_set: DesiredSetRecord | None = None) -> DesiredSetRecord:
    """What is to be put in the place of this desired set, if there is one, so that the source becomes so."""
    return DesiredSetRecord(
        record.source,
        aim.members if set(aim.members) != set(record.members) else (),
        aim.leader if aim.leader != record.leader.forwarder else "",
        revision=desired_set.revision if desired_set is not None else 0,
    )


def is_nothing(desired_set: DesiredSetRecord) -> bool:
    """It asks for no change."""
    return not desired_set.members and not desired_set.leader


DesiredSets = Mapping[int, DesiredSetRecord]
"""By source. What is asked for already counts as if it were so."""


def rebalanced(
    records: Mapping[int, SourceRecord],
    desired_sets: DesiredSets,
    living: Mapping[str, MemberRecord],
    slack: Fraction = EVEN_SLACK,
    *,
    leaders_only: bool = False,
) -> dict[int, Aim]:
    """The sources that are to change so that no node has more copies, or leaders, than its bound; as far as failure
    domains, and the sets, leave a way."""
    before = {
        source: aim_of(record, desired_sets.get(source))
        for source, record in sorted(records.items())
        if record.leader.forwarder in living
    }
    aims = dict(before)
    if not leaders_only:
        _even_copies(aims, living, slack)
    _even_leaders(aims, living, slack)
    return {source: aim for source, aim in aims.items() if aim != before[source]}


def without(
    name: str, records: Mapping[int, SourceRecord], desired_sets: DesiredSets, living: Mapping[str, MemberRecord]
) -> dict[int, Aim]:
    """Every source that has this node, with another one in its place. Raises Impossible when there is none."""
    aims = {source: aim_of(record, desired_sets.get(source)) for source, record in sorted(records.items())}
    copies = Counter(member for aim in aims.values() for member in aim.members)
    leaders = Counter(aim.leader for aim in aims.values())
    others = {other: member for other, member in living.items() if other != name}
    bound = bound_of(sum(copies.values()), len(others))
    found = {}
    for source, aim in aims.items():
        if name not in aim.members:
            continue
        kept = tuple(member for member in aim.members if member != name)
        if not (free := others.keys() - set(kept)):
            raise MoveImpossible(
                f"source {source} is on {', '.join(aim.members)}, and no other node lives that could take the "
                f"place of {name}: start one more node first"
            )
        full = {other for other in free if copies[other] >= bound}
        new = next_member(source, kept, free, others, full)
        copies[new] += 1
        leader = aim.leader
        if leader == name:
            leader = _least(source, [member for member in kept if member in living] or [new], leaders)
            leaders[leader] += 1
        found[source] = Aim(tuple(sorted((*kept, new))), leader)
    return found


def grown(source: int, aim: Aim, name: str) -> Aim:
    """With this node, too. Raises Impossible."""
    if name in aim.members:
        raise MoveImpossible(f"{name} has a copy of source {source} already")
    return aim._replace(members=tuple(sorted((*aim.members, name))))


def shrunk(source: int, aim: Aim, name: str, living: Collection[str]) -> Aim:
    """Without this node, and none in its place. Raises Impossible."""
    members, leader = aim
    if name not in members:
        raise MoveImpossible(f"{name} has no copy of source {source}")
    kept = tuple(member for member in members if member != name)
    if not kept:
        raise MoveImpossible(f"{name} has the only copy of source {source}: grow it to another node first")
    if leader == name:
        leader = _least(source, [member for member in kept if member in living] or kept, Counter())
    return Aim(kept, leader)


def _least(source: int, names: Iterable[str], loads: Mapping[str, int]) -> str:
    return min(ranked(source, names), key=lambda name: loads.get(name, 0))


def _even_copies(aims: dict[int, Aim], living: Mapping[str, MemberRecord], slack: Fraction) -> None:
    loads = dict.fromkeys(sorted(living), 0)
    for aim in aims.values():
        for name in aim.members:
            if name in loads:
                loads[name] += 1
    bound = even_bound(sum(loads.values()), len(loads), slack)
    while (change := _copy_that_moves(aims, living, loads, bound)) is not None:
        source, old, new = change
        kept = [name for name in aims[source].members if name != old]
        leader = aims[source].leader
        if leader == old:
            leaders = Counter(aim.leader for aim in aims.values())
            leader = _least(source, [name for name in kept if name in living] or [new], leaders)
        aims[source] = Aim(tuple(sorted((*kept, new))), leader)
        loads[old] -= 1
        loads[new] += 1


def _copy_that_moves(
    aims: Mapping[int, Aim], living: Mapping[str, MemberRecord], loads: Mapping[str, int], bound: int
) -> tuple[int, str, str] | None:
    """From one of the nodes with the most, to one of those with the least; None: nothing that has to can move."""
    for old in sorted((name for name in loads if loads[name] > bound), key=lambda name: (-loads[name], name)):
        for new in sorted((name for name in loads if loads[name] < bound), key=lambda name: (loads[name], name)):
            able = [
                (aim.leader == old, ranked(source, living).index(new), source)
                for source, aim in aims.items()
                if old in aim.members and new not in aim.members and _may_replace(aim.members, old, new, living)
            ]
            if able:
                return min(able)[-1], old, new
    return None


def _may_replace(members: Iterable[str], old: str, new: str, living: Mapping[str, MemberRecord]) -> bool:
    """The set fails together no more than it did."""
    others = [living[name] for name in members if name != old and name in living]

    def together(name: str) -> tuple[int, int]:
        member = living[name]
        return (
            sum(member.domain == each.domain for each in others),
            sum(bool(member.region) and member.region == each.region for each in others),
        )

    return together(new) <= together(old)


def _even_leaders(aims: dict[int, Aim], living: Collection[str], slack: Fraction) -> None:
    loads = dict.fromkeys(sorted(living), 0)
    for aim in aims.values():
        loads[aim.leader] += 1
    bound = even_bound(sum(loads.values()), len(loads), slack)
    for old in sorted(loads, key=lambda name: (-loads[name], name)):
        while loads[old] > bound:
            path = _path(aims, loads, old, bound)
            if path is None:
                break
            for source, name in path:
                aims[source] = aims[source]._replace(leader=name)
            loads[old] -= 1
            loads[path[-1][1]] += 1


def _path(aims: Mapping[int, Aim], loads: Mapping[str, int], start: str, bound: int) -> list[tuple[int, str]] | None:
    """Sources and their new leaders: one of this node's goes to a member of its set, if that is full one of that
    one's to another, and so on to one below the bound, in as few steps as there can be (Kuhn 1955)."""
    came: dict[str, tuple[str, int]] = {start: ("", 0)}
    waiting = deque([start])
    while waiting:
        at = waiting.popleft()
        if loads[at] < bound:
            path = []
            while at != start:
                before, source = came[at]
                path.append((source, at))
                at = before
            return path[::-1]
        edges: dict[str, tuple[int, int]] = {}
        for source, aim in aims.items():
            if aim.leader == at:
                for rank, name in enumerate(ranked(source, aim.members)):
                    if name in loads and name not in came:
                        edges[name] = min(edges.get(name, (rank, source)), (rank, source))
        for name in sorted(edges, key=lambda name: (loads[name], name)):
            came[name] = at, edges[name][1]
            waiting.append(name)
    return None
