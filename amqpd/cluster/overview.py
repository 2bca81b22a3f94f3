"""The cluster as an operator looks at it: its members, and where the sources are.

What comes in: a roster, how its sources stand. What goes out: rows and sentences, for people and for programs.
Rules: 1. Who was a member and lives no more is in it, with what is still led there: that waits for another leader.
2. A copy counts when the disk is the one that the source's record names. 3. Who lives and has no link to a majority
of the nodes is said to be isolated, with who refuses it, why, and the way out.
Not here: columns and JSON (`amqpd/commands/`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from amqpd.cluster.forgotten_starts import forgotten_start_sentence, recent_starts
from amqpd.cluster.linkage import Linkage
from amqpd.cluster.records import source_of_key
from amqpd.cluster.roster import Roster
from amqpd.cluster.source_status import SourceStatus

EMPTY: Mapping[str, int] = MappingProxyType({})
Row = dict[str, Any]

WAY_OUT = "until the record is put back as it was in a backup of etcd (docs/clustering.md)"


NO_LEASES = (
    "No node has a lease in etcd: none runs; or they run, and do not trust etcd any more, which was emptied, "
    "replaced or put back from an older copy meanwhile (each one's log and `amqpd status` say so then). Start all "
    "nodes again, one after the other; forget none and force nothing before "
    '(docs/clustering.md, "etcd was emptied").'
)


def member_rows(roster: Roster, linkage: Linkage | None = None) -> list[Row]:
    """One for each name that is or was a member, or that a source names. `linkage`: as who asks sees it; None: as the
    store has it."""
    linkage = roster.linkage if linkage is None else linkage
    records = roster.records.values()
    named = {name for record in records for name in (record.leader.forwarder, *record.members)}
    rows = []
    for name in sorted({*roster.members, *roster.known, *named}):
        member, known = roster.members.get(name), roster.known.get(name)
        last = member or known
        generation = last.generation if last is not None else -1
        listed = [record for record in records if name in record.members]
        rows.append(
            {
                "name": name,
                "lives": member is not None,
                "isolated": name in linkage.isolated,
                "missing_links": [
                    {"node": other, "says": who, "kind": link.kind, "reason": link.reason}
                    for (who, of), link in sorted(linkage.said.items())
                    for other in ({who, of} - {name} if name in (who, of) else ())
                ],
                "incarnation": last.incarnation if last is not None else None,
                "generation": last.generation if last is not None else None,
                "version": member.version if member is not None else None,
                "label": member.cluster if member is not None else None,
                "region": member.region if member is not None else None,
                "host": member.host if member is not None else None,
                "port": member.port if member is not None else None,
                "leaders": sum(record.leader.forwarder == name for record in records),
                "copies": sum(record.counts(name, generation) for record in listed),
                "copies_of_another_disk": sum(not record.counts(name, generation) for record in listed),
            }
        )
    return rows


def source_rows(roster: Roster) -> list[Row]:
    return [
        {
            "source": source,
            "leader": record.leader.forwarder,
            "epoch": record.leader.epoch,
            "incarnation": record.leader.incarnation,
            "members": list(record.members),
        }
        for source, record in sorted(roster.records.items())
    ]


def unreadable_rows(roster: Roster) -> list[Row]:
    """Records of the store that cannot be read: what each one stops, and why. Nothing else is stopped by it."""
    rows = []
    for key, reason in sorted(roster.unreadable.items()):
        source = source_of_key(key)
        stops = f"source {source} is stopped" if source else "it is left out"
        rows.append({"key": key, "source": source or None, "says": f"{reason}: {stops}, {WAY_OUT}"})
    return rows


def leader_rows(roster: Roster) -> list[Row]:
    """One for each leader: how many sources, and which."""
    at: dict[str, list[int]] = {}
    for source, record in sorted(roster.records.items()):
        at.setdefault(record.leader.forwarder, []).append(source)
    return [
        {"leader": leader, "sources": len(found), "numbers": ranges(found)} for leader, found in sorted(at.items())
    ]


def sentences(
    roster: Roster,
    found: Sequence[SourceStatus],
    linkage: Linkage | None = None,
    *,
    now_ms: int,
    of_store: Sequence[str] = (),
    classic: Mapping[str, int] = EMPTY,
    of_data: Sequence[str] = (),
) -> list[str]:
    """How the cluster is, in words; what is not well in a sentence of its own. `found`: of all sources, in their
    order; `linkage`: as `member_rows`; `now_ms`: since the epoch; `of_store`: what is not well with the store;
    `classic`: how many classic queues each node leads, "": how many no node has claimed; `of_data`: what the node
    that is asked says of its data connections."""
    linkage = roster.linkage if linkage is None else linkage
    living = sorted(roster.members)
    apart = f"{_listed(', gone: ', roster.gone)}{_listed(', isolated: ', sorted(linkage.isolated))}"
    said = [
        f"{_count(len(living), 'node lives', 'nodes live')}{apart}.",
        *of_store,
        *([] if of_store else _of_gone(roster, classic)),
        *(f"{each}." for each in linkage.sentences()),
        *of_data,
        *_of_sources(found, roster, linkage, advise=not of_store),
    ]
    if desired := sorted(roster.desired_sets.keys() & roster.records.keys()):
        said.append(
            f"{_count(len(desired), 'source', 'sources')} ({ranges(desired)}) being changed: amqpd quorum status."
        )
    said += [f"{row['says']}." for row in unreadable_rows(roster)]
    said += [f"{forgotten_start_sentence(each)}." for each in recent_starts(roster, now_ms)]
    if found and not of_store and not roster.unreadable and not linkage.said and all(each.is_well for each in found):
        said.append(f"{_count(len(found), 'source is', 'sources are')} well.")
    return said


def store_sentences(silent_s: float, lapsed: Collection[str], replaced: str = "") -> list[str]:
    """What a node says of the store. `silent_s`: for how long its lease was not renewed; 0: it was. `lapsed`: nodes
    that live, itself among them, of which the store has no lease. `replaced`: what is there in the store's place."""
    said = []
    if replaced:
        return [f"{replaced[:1].upper()}{replaced[1:]}. What is said of nodes and leaders is as it was before."]
    if silent_s:
        said.append(
            f"The metadata store (etcd) has not answered this node for {silent_s:.0f} s: what is said of nodes and "
            "leaders is as it was before, and a lost leader has no successor until etcd answers."
        )
    if lapsed:
        said.append(
            f"No leases in etcd, which was silent: {', '.join(sorted(lapsed))}; this node has links to them, so they "
            "live, and renew their leases."
        )
    return said


def problems(
    roster: Roster, found: Sequence[SourceStatus], *, now_ms: int, classic: Mapping[str, int] = EMPTY
) -> list[str]:
    """What is not well, a sentence each; none: all is. `found`, `now_ms` and `classic`: as `sentences` has them."""
    linkage = roster.linkage
    return [
        *_of_gone(roster, classic),
        *(f"{each}." for each in linkage.sentences()),
        *_of_sources(found, roster, linkage),
        *(f"{row['says']}." for row in unreadable_rows(roster)),
        *(f"{forgotten_start_sentence(each)}." for each in recent_starts(roster, now_ms)),
    ]


def _of_gone(roster: Roster, classic: Mapping[str, int]) -> list[str]:
    said = []
    if not roster.members and roster.gone:
        return [NO_LEASES]
    for name in roster.gone:
        waiting = classic.get(name, 0)
        theirs = f" ({_count(waiting, 'classic queue waits', 'classic queues wait')} for it)" if waiting else ""
        said.append(
            f"{name} is gone{theirs}: it has not renewed its lease; start it again, or take it out for good: "
            f"amqpd cluster forget {name}."
        )
    if unclaimed := classic.get("", 0):
        have = _count(unclaimed, "classic queue has", "classic queues have")
        missing = f": {', '.join(roster.gone)} may have messages of them, start or forget it" if roster.gone else ""
        said.append(f"{have} no node yet{missing}.")
    return said


def _of_sources(found: Sequence[SourceStatus], roster: Roster, linkage: Linkage, *, advise: bool = True) -> list[str]:
    """`advise`: what is asked of operators is said, too; never while no node lives that could tell whether it is
    true."""
    advise = advise and bool(roster.members)
    said = []
    stopped = [each.source for each in found if not each.has_majority]
    served = roster.members.keys() - linkage.isolated
    waiting = [each.source for each in found if each.has_majority and each.leader not in served]
    fewer = [each.source for each in found if each.under_replicated]
    for numbers, words in (
        (
            stopped,
            "without a majority of their copies: stopped until a node is back"
            + (", or given up: amqpd quorum force" if advise else ""),
        ),
        (waiting, "about to be taken over by another node"),
        (fewer, "with fewer copies than they should have" + (": amqpd quorum grow NODE --all" if advise else "")),
    ):
        if numbers:
            said.append(f"{_count(len(numbers), 'source', 'sources')} ({ranges(numbers)}) {words}.")
    return said


def alike_rows(found: Iterable[SourceStatus], queues: Mapping[int, int]) -> list[Row]:
    """Sources of which the same is to be said are one row. `queues`: how many each source has."""
    alike: dict[tuple[str, tuple[str, ...], str, bool], list[int]] = {}
    for each in found:
        alike.setdefault((each.leader, each.members, each.sentence, each.is_well), []).append(each.source)
    return [
        {
            "numbers": ranges(sources),
            "sources": len(sources),
            "queues": sum(queues.get(source, 0) for source in sources),
            "leader": leader,
            "members": list(members),
            "well": well,
            "says": sentence,
        }
        for (leader, members, sentence, well), sources in alike.items()
    ]


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _listed(head: str, names: list[str]) -> str:
    return head + ", ".join(names) if names else ""


def ranges(numbers: list[int]) -> str:
    """`[1, 2, 3, 7]` -> `1-3 7`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
