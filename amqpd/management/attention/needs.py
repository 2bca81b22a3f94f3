"""Sentences about what needs attention, the most urgent first: for pages, commands and programs.

What comes in: alarms and facts of all nodes, how the cluster is. What goes out: one `Need` for each thing, with the
page where somebody acts.
Rules: 1. Pure and bounded: of each kind `EACH_MAX` things in a sentence of their own, and one for the rest. 2. The
order is that of `ORDER`; within a kind what matters most is first. 3. A queue is in one virtual host and led by one
node; what several nodes tell of one exchange is added up. 4. A sentence has no moment in it: `since_ms` is shown by
the clock and the zone of who reads.
Not here: where facts come from (`watch.py`), who asks the nodes (`gathering.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict
from urllib.parse import quote

from amqpd.management.attention.alarms import NodeAlarm
from amqpd.management.attention.directories import NodeDirectory
from amqpd.management.attention.facts import (
    BLOCKED,
    BROKEN,
    CUT_OFF,
    DAMAGED,
    DEAD_LETTERS,
    EACH_MAX,
    JOURNAL,
    MORE,
    NO_CONSUMERS,
    OF_QUEUES,
    PREFETCH,
    REFUSING,
    UNROUTABLE,
    Fact,
    counted,
    does,
    sentence,
)

ALARM, STOPPED, AWAY, FEWER, SILENT = "alarm", "stopped", "away", "fewer_copies", "silent"
ISOLATED, UNREADABLE = "isolated", "unreadable"
STORE_SILENT, STORE_REPLACED = "store_silent", "store_replaced"
FORGOTTEN, DIRECTORY = "forgotten", "data_directory"
OF_CLUSTER = (STOPPED, CUT_OFF, STORE_REPLACED, STORE_SILENT, UNREADABLE, ISOLATED)
OF_STOPPED = (*OF_CLUSTER, DAMAGED, BROKEN)
BAD = (ALARM, AWAY, DIRECTORY, *OF_STOPPED)
ORDER = (
    *(ALARM, *OF_STOPPED, NO_CONSUMERS, PREFETCH, REFUSING, DEAD_LETTERS, UNROUTABLE, BLOCKED, JOURNAL),
    *(AWAY, DIRECTORY, FEWER, FORGOTTEN, SILENT),
)
DIRECTORIES_MAX = 10
ALARMS_MAX = 20
"""in sentences; a node has few"""
FULLEST, BLOCKED_FIRST, CLUSTER = "#/queues?sort=messages&desc=1", "#/connections?sort=state", "#/cluster"
LOG = "#/log?level=warning"
ALARM_LINKS = {
    "memory": "#/queues?sort=memory&desc=1",
    "disk": "#/queues?sort=message_bytes&desc=1",
    "audit": "#/audit",
}
REST = {
    DAMAGED: "more queues stop at damaged messages",
    BROKEN: "more queues are out of service",
    NO_CONSUMERS: "more queues have messages and nobody who consumes",
    PREFETCH: "more queues have consumers that acknowledge nothing",
    REFUSING: "more queues are full and refuse publishes",
    DEAD_LETTERS: "more queues get dead letters",
    UNROUTABLE: "more exchanges have messages that reach no queue",
}


class Subject(TypedDict):
    """The subject of a sentence about what needs attention; a member is empty where there is none."""

    node: str
    vhost: str
    name: str


class Need(TypedDict):
    """One thing that needs attention."""

    severity: Literal["bad", "warn"]
    kind: str
    subject: Subject
    says: str
    """one sentence, without its full stop"""
    link: str
    """of the page where somebody acts, behind the address of the pages"""
    since_ms: int | None
    clearable: bool
    """an alarm that an operator has set"""


class ClusterFacts(NamedTuple):
    """The state of the cluster, as the node sees it that is asked."""

    away: Sequence[str]
    """nodes that are gone and not forgotten"""
    stopped: int
    """sources without a majority of their copies"""
    stopped_queues: int
    fewer: int
    """sources that lack a copy, and have a majority"""
    fewer_queues: int
    silent: Sequence[str]
    """nodes that live and did not answer"""
    why_silent: Mapping[str, str] = {}
    """as far as that is known"""
    isolated: Mapping[str, str] = {}
    """nodes that live and have no link to a majority: who refuses them and why, and the way out"""
    unreadable: Sequence[str] = ()
    """a sentence for each record of the store that cannot be read"""
    store_silent: bool = False
    """the store does not answer the node that is asked"""
    store_replaced: str = ""
    """what is there in the place of the store that the node opened, which it does not use; empty: nothing is"""
    classic: Mapping[str, int] = {}
    """how many classic queues each other node leads; "": how many no node has claimed"""
    forgotten: Mapping[str, tuple[str, int]] = {}
    """nodes that were forgotten and ask to be let in: a sentence with the way out, and since when (ms since the
    epoch)"""


@dataclass(frozen=True)
class GatheredFacts:
    """The alarms and facts that all nodes told. `clustered`: there may be several nodes, so sentences name them."""

    clustered: bool
    alarms: Sequence[NodeAlarm]
    facts: Sequence[tuple[str, Fact]]
    """with the node that tells"""
    cluster: ClusterFacts | None = None
    directories: Sequence[NodeDirectory] = ()
    """that are not in use, of all nodes"""


def needs(told: GatheredFacts) -> list[Need]:
    """In order; none where nothing needs attention."""
    by_kind: defaultdict[str, list[tuple[str, Fact]]] = defaultdict(list)
    more: Counter[str] = Counter()
    for node, fact in told.facts:
        if fact.kind == MORE:
            more[fact.name] += int(fact.numbers.get("count", 0))
        else:
            by_kind[fact.kind].append((node, fact))
    by_kind[UNROUTABLE] = _added_up(by_kind[UNROUTABLE])
    found = [*_alarms(told), *_cluster(told.cluster), *_directories(told)]
    for kind in (*OF_QUEUES, UNROUTABLE, BLOCKED, JOURNAL, CUT_OFF):
        facts = sorted(by_kind[kind], key=lambda each: (-each[1].weight, each[1].vhost, each[1].name))
        first = facts[:EACH_MAX]
        found += [_need(told, *each) for each in first]
        rest = len(facts) - len(first) + more[kind]
        if rest and kind in REST:
            link = "#/exchanges" if kind == UNROUTABLE else FULLEST
            found.append(_made(kind, f"{rest:,} {REST[kind]}", link))
    return sorted(found, key=lambda need: ORDER.index(need["kind"]))


def _made(
    kind: str,
    says: str,
    link: str = CLUSTER,
    node: str = "",
    vhost: str = "",
    name: str = "",
    *,
    since_ms: int | None = None,
    clearable: bool = False,
    is_bad: bool | None = None,
) -> Need:
    """`is_bad`: other than its kind says."""
    return {
        "severity": "bad" if (kind in BAD if is_bad is None else is_bad) else "warn",
        "kind": kind,
        "subject": {"node": node, "vhost": vhost, "name": name},
        "says": says,
        "link": link,
        "since_ms": since_ms,
        "clearable": clearable,
    }


def _first(found: Sequence[Need], more: str, most: int = EACH_MAX) -> Iterator[Need]:
    """The first of one kind, and one need for all others. `more`: what is said of these, behind their number."""
    yield from found[:most]
    if (rest := len(found) - most) > 0:
        yield _made(found[0]["kind"], f"{rest:,} more {more}")


# Alarms and the cluster


def _alarms(told: GatheredFacts) -> Iterator[Need]:
    return _first([_alarm(alarm, told.clustered) for alarm in told.alarms], "alarms are on", ALARMS_MAX)


def _alarm(alarm: NodeAlarm, clustered: bool) -> Need:
    node, name, clearable = alarm["node"], alarm["name"], alarm["clearable"]
    at = f" at node {node}" if clustered else ""
    says = f"the {name} alarm is on{at}: {alarm['says'] or 'publishers wait'}"
    link = BLOCKED_FIRST if clearable else ALARM_LINKS.get(name, BLOCKED_FIRST)
    return _made(ALARM, says, link, node, name=name, since_ms=alarm["since_ms"], clearable=clearable)


def _cluster(cluster: ClusterFacts | None) -> Iterator[Need]:
    if cluster is None:
        return
    if cluster.stopped:
        queues = does(cluster.stopped_queues, "quorum queue", "stops", "stop")
        sources = does(cluster.stopped, "source", "has", "have")
        yield _made(STOPPED, f"{queues}: {sources} no majority of the copies")
    if cluster.store_silent:
        yield _made(
            STORE_SILENT,
            "the metadata store (etcd) does not answer this node: until it does nothing is declared, bound or moved, "
            "and a lost leader has no successor; publishing and consuming go on",
        )
    if cluster.store_replaced:
        yield _made(STORE_REPLACED, f"{cluster.store_replaced}; publishing and consuming go on")
    isolated = [
        _made(ISOLATED, f"node {name} lives and takes no part: {why}", node=name)
        for name, why in sorted(cluster.isolated.items())
    ]
    yield from _first(isolated, "nodes live and take no part")
    unreadable = [_made(UNREADABLE, sentence) for sentence in cluster.unreadable]
    yield from _first(unreadable, "records of the metadata store cannot be read")
    yield from _away(cluster)
    if cluster.fewer:
        queues = counted(cluster.fewer_queues, "quorum queue")
        have = "has" if cluster.fewer == 1 else "have"
        yield _made(FEWER, f"{counted(cluster.fewer, 'source')} with {queues} {have} fewer copies than wanted")
    silent = [name for name in cluster.silent if name not in cluster.isolated]
    for name in silent[:EACH_MAX]:
        why = f" ({cluster.why_silent[name]})" if cluster.why_silent.get(name) else ""
        yield _made(SILENT, f"node {name} does not answer{why}: what its queues need is not known", node=name)
    forgotten = [
        _made(FORGOTTEN, says, node=name, since_ms=since_ms)
        for name, (says, since_ms) in sorted(cluster.forgotten.items())
    ]
    yield from _first(forgotten, "nodes that were forgotten ask to be let in")


def _away(cluster: ClusterFacts) -> Iterator[Need]:
    for name in cluster.away[:EACH_MAX]:
        waiting = cluster.classic.get(name, 0)
        theirs = f", and {counted(waiting, 'classic queue')} with it" if waiting else ""
        yield _made(AWAY, f"node {name} is away{theirs}", node=name)
    if unclaimed := cluster.classic.get("", 0):
        it, they_get = ("it", "it gets") if unclaimed == 1 else ("them", "they get")
        yield _made(
            AWAY,
            f"{does(unclaimed, 'classic queue', 'has', 'have')} no node yet, and no client can use {it}: {they_get} "
            "one when all nodes have been started, or were forgotten",
        )
    if len(cluster.away) > EACH_MAX:
        yield _made(AWAY, f"{len(cluster.away) - EACH_MAX:,} more nodes are away")


def _directories(told: GatheredFacts) -> Iterator[Need]:
    link = CLUSTER if told.clustered else LOG
    found = [
        _made(DIRECTORY, each.says(told.clustered), link, each.node, name=each.path, is_bad=each.is_bad)
        for each in sorted(told.directories, key=lambda each: (not each.is_bad, each.node, each.path))
    ]
    return _first(found, "data directories are not in use", DIRECTORIES_MAX)


# Facts


def _added_up(facts: Sequence[tuple[str, Fact]]) -> list[tuple[str, Fact]]:
    """Of one exchange several nodes may tell."""
    found: dict[tuple[str, str], tuple[str, Fact]] = {}
    for node, fact in facts:
        key = fact.vhost, fact.name
        if key in found:
            before = found[key][1].numbers
            numbers = {name: before.get(name, 0) + value for name, value in fact.numbers.items()}
            numbers["last_s"] = min(before.get("last_s", 0), fact.numbers.get("last_s", 0))
            found[key] = "", fact._replace(numbers=numbers)
        else:
            found[key] = node, fact
    return list(found.values())


def _need(told: GatheredFacts, node: str, fact: Fact) -> Need:
    says = sentence(fact, node, told.clustered)
    if fact.kind == CUT_OFF:
        return _made(fact.kind, says, node=node)
    if fact.kind == JOURNAL:
        return _made(fact.kind, says, BLOCKED_FIRST, node)
    of = "exchanges" if fact.kind == UNROUTABLE else "queues"
    link = BLOCKED_FIRST if fact.kind == BLOCKED else _place(of, fact)
    return _made(fact.kind, says, link, node, fact.vhost, fact.name)


def _place(of: str, fact: Fact) -> str:
    name = "amq.default" if of == "exchanges" and not fact.name else fact.name
    parts = (quote(each.encode("utf-8", "surrogateescape"), safe="") for each in (fact.vhost, name))
    return f"#/{of}/{'/'.join(parts)}"
