"""The cluster as an operator looks at it: its members, and where the sources are.

What comes in: a roster, how its sources stand. What goes out: rows and sentences, for people and for programs.
Rules: 1. Who was a member and lives no more is in it, with what is still at home there: that waits for another home.
2. A copy counts when the disk is the one that the source's record names.
Not here: columns and JSON (`amqpd/commands/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amqpd.cluster.roster import Roster
from amqpd.cluster.standing import Standing

Row = dict[str, Any]


def member_rows(roster: Roster) -> list[Row]:
    """One for each name that is or was a member, or that a source names."""
    records = roster.records.values()
    named = {name for record in records for name in (record.home.forwarder, *record.members)}
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
                "life": last.life if last is not None else None,
                "generation": last.generation if last is not None else None,
                "version": member.version if member is not None else None,
                "label": member.cluster if member is not None else None,
                "region": member.region if member is not None else None,
                "host": member.host if member is not None else None,
                "port": member.port if member is not None else None,
                "homes": sum(record.home.forwarder == name for record in records),
                "copies": sum(record.counts(name, generation) for record in listed),
                "copies_of_another_disk": sum(not record.counts(name, generation) for record in listed),
            }
        )
    return rows


def source_rows(roster: Roster) -> list[Row]:
    return [
        {
            "source": source,
            "home": record.home.forwarder,
            "epoch": record.home.epoch,
            "life": record.home.life,
            "members": list(record.members),
        }
        for source, record in sorted(roster.records.items())
    ]


def home_rows(roster: Roster) -> list[Row]:
    """One for each home: how many sources, and which."""
    at: dict[str, list[int]] = {}
    for source, record in sorted(roster.records.items()):
        at.setdefault(record.home.forwarder, []).append(source)
    return [{"home": home, "sources": len(found), "numbers": ranges(found)} for home, found in sorted(at.items())]


def sentences(roster: Roster, found: Sequence[Standing]) -> list[str]:
    """How the cluster is, in words; what is not well in a sentence of its own. `found`: of all sources, in their
    order."""
    living, gone = sorted(roster.members), sorted(roster.known.keys() - roster.members.keys())
    said = [f"{_count(len(living), 'node lives', 'nodes live')}{_listed(', gone: ', gone)}."]
    stopped = [each.source for each in found if not each.has_majority]
    waiting = [each.source for each in found if each.has_majority and each.home not in roster.members]
    fewer = [each.source for each in found if each.under_replicated]
    wished = sorted(roster.wishes.keys() & roster.records.keys())
    for numbers, words in (
        (
            stopped,
            "without a majority of their copies: stopped until a node is back, or given up: amqpd quorum force",
        ),
        (waiting, "about to be taken over by another node"),
        (fewer, "with fewer copies than they should have: amqpd quorum grow NODE --all"),
        (wished, "being changed: amqpd quorum status"),
    ):
        if numbers:
            said.append(f"{_count(len(numbers), 'source', 'sources')} ({ranges(numbers)}) {words}.")
    if found and all(each.is_well for each in found):
        said.append(f"{_count(len(found), 'source is', 'sources are')} well.")
    return said


def alike_rows(found: Iterable[Standing], queues: Mapping[int, int]) -> list[Row]:
    """Sources of which the same is to be said are one row. `queues`: how many each source has."""
    alike: dict[tuple[str, tuple[str, ...], str, bool], list[int]] = {}
    for each in found:
        alike.setdefault((each.home, each.members, each.sentence, each.is_well), []).append(each.source)
    return [
        {
            "numbers": ranges(sources),
            "sources": len(sources),
            "queues": sum(queues.get(source, 0) for source in sources),
            "home": home,
            "members": list(members),
            "well": well,
            "says": sentence,
        }
        for (home, members, sentence, well), sources in alike.items()
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
