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
)
from amqpd.management.why.queues import said_time

ALARM, STOPPED, AWAY, FEWER, SILENT = "alarm", "stopped", "away", "fewer_copies", "silent"
ISOLATED, UNREADABLE = "isolated", "unreadable"
STORE_SILENT, STORE_REPLACED = "store_silent", "store_replaced"
FORGOTTEN, DIRECTORY = "forgotten", "data_directory"
OF_CLUSTER = (STOPPED, CUT_OFF, STORE_REPLACED, STORE_SILENT, UNREADABLE, ISOLATED)
OF_STOPPED = (*OF_CLUSTER, DAMAGED, BROKEN)
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
            found.append(_made(_severity(kind), kind, f"{rest:,} {REST[kind]}", link))
    return sorted(found, key=lambda need: ORDER.index(need["kind"]))


def _made(
    severity: Literal["bad", "warn"],
    kind: str,
    says: str,
    link: str,
    node: str = "",
    vhost: str = "",
    name: str = "",
    since_ms: int | None = None,
    clearable: bool = False,
) -> Need:
    return {
        "severity": severity,
        "kind": kind,
        "subject": {"node": node, "vhost": vhost, "name": name},
        "says": says,
        "link": link,
        "since_ms": since_ms,
        "clearable": clearable,
    }


# Alarms and the cluster


def _alarms(told: GatheredFacts) -> Iterator[Need]:
    for alarm in told.alarms[:ALARMS_MAX]:
        at = f" at node {alarm['node']}" if told.clustered else ""
        says = f"the {alarm['name']} alarm is on{at}: {alarm['says'] or 'publishers wait'}"
        link = BLOCKED_FIRST if alarm["clearable"] else ALARM_LINKS.get(alarm["name"], BLOCKED_FIRST)
        at_node, since_ms = alarm["node"], alarm["since_ms"]
        yield _made("bad", ALARM, says, link, at_node, "", alarm["name"], since_ms, alarm["clearable"])
    if (rest := len(told.alarms) - ALARMS_MAX) > 0:
        yield _made("bad", ALARM, f"{rest:,} more alarms are on", CLUSTER)


def _cluster(cluster: ClusterFacts | None) -> Iterator[Need]:
    if cluster is None:
        return
    if cluster.stopped:
        queues = (
            f"{_count(cluster.stopped_queues, 'quorum queue')} {'stops' if cluster.stopped_queues == 1 else 'stop'}"
        )
        sources = _count(cluster.stopped, "source")
        have = "has" if cluster.stopped == 1 else "have"
        yield _made("bad", STOPPED, f"{queues}: {sources} {have} no majority of the copies", CLUSTER)
    if cluster.store_silent:
        says = (
            "the metadata store (etcd) does not answer this node: until it does nothing is declared, bound or moved, "
            "and a lost leader has no successor; publishing and consuming go on"
        )
        yield _made("bad", STORE_SILENT, says, CLUSTER)
    if cluster.store_replaced:
        yield _made("bad", STORE_REPLACED, f"{cluster.store_replaced}; publishing and consuming go on", CLUSTER)
    yield from _isolated(cluster)
    for sentence in cluster.unreadable[:EACH_MAX]:
        yield _made("bad", UNREADABLE, sentence, CLUSTER)
    if (rest := len(cluster.unreadable) - EACH_MAX) > 0:
        yield _made("bad", UNREADABLE, f"{rest:,} more records of the metadata store cannot be read", CLUSTER)
    for name in cluster.away[:EACH_MAX]:
        waiting = cluster.classic.get(name, 0)
        theirs = f", and {_count(waiting, 'classic queue')} with it" if waiting else ""
        yield _made("bad", AWAY, f"node {name} is away{theirs}", CLUSTER, name)
    if unclaimed := cluster.classic.get("", 0):
        have, get = ("has", "it gets") if unclaimed == 1 else ("have", "they get")
        says = (
            f"{_count(unclaimed, 'classic queue')} {have} no node yet, and no client can use "
            f"{'it' if unclaimed == 1 else 'them'}: {get} one when all nodes have been started, or were forgotten"
        )
        yield _made("bad", AWAY, says, CLUSTER)
    if len(cluster.away) > EACH_MAX:
        yield _made("bad", AWAY, f"{len(cluster.away) - EACH_MAX:,} more nodes are away", CLUSTER)
    if cluster.fewer:
        sources, have = _count(cluster.fewer, "source"), "has" if cluster.fewer == 1 else "have"
        queues = _count(cluster.fewer_queues, "quorum queue")
        yield _made("warn", FEWER, f"{sources} with {queues} {have} fewer copies than wanted", CLUSTER)
    silent = [name for name in cluster.silent if name not in cluster.isolated]
    for name in silent[:EACH_MAX]:
        why = f" ({cluster.why_silent[name]})" if cluster.why_silent.get(name) else ""
        says = f"node {name} does not answer{why}: what its queues need is not known"
        yield _made("warn", SILENT, says, CLUSTER, name)
    for name in sorted(cluster.forgotten)[:EACH_MAX]:
        says, since_ms = cluster.forgotten[name]
        yield _made("warn", FORGOTTEN, says, CLUSTER, name, since_ms=since_ms)
    if (rest := len(cluster.forgotten) - EACH_MAX) > 0:
        yield _made("warn", FORGOTTEN, f"{rest:,} more nodes that were forgotten ask to be let in", CLUSTER)


def _isolated(cluster: ClusterFacts) -> Iterator[Need]:
    for name in sorted(cluster.isolated)[:EACH_MAX]:
        says = f"node {name} lives and takes no part: {cluster.isolated[name]}"
        yield _made("bad", ISOLATED, says, CLUSTER, name)
    if (rest := len(cluster.isolated) - EACH_MAX) > 0:
        yield _made("bad", ISOLATED, f"{rest:,} more nodes live and take no part", CLUSTER)


def _directories(told: GatheredFacts) -> Iterator[Need]:
    for each in sorted(told.directories, key=lambda each: (not each.is_bad, each.node, each.path))[:DIRECTORIES_MAX]:
        link = CLUSTER if told.clustered else LOG
        yield _made(
            "bad" if each.is_bad else "warn", DIRECTORY, each.says(told.clustered), link, each.node, name=each.path
        )
    if (rest := len(told.directories) - DIRECTORIES_MAX) > 0:
        yield _made("bad", DIRECTORY, f"{rest:,} more data directories are not in use", CLUSTER)


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
    numbers: defaultdict[str, float] = defaultdict(float, fact.numbers)
    if fact.kind == CUT_OFF:
        return _made("bad", CUT_OFF, _cut_off(node, numbers), CLUSTER, node)
    if fact.kind == JOURNAL:
        at = f" at node {node}" if told.clustered else ""
        return _made("warn", JOURNAL, f"publishers wait{at} {_journal(fact, numbers)}", BLOCKED_FIRST, node)
    says = SENTENCES[fact.kind](fact, numbers)
    if fact.kind == BLOCKED and told.clustered:
        says = says.replace("blocked", f"blocked at node {node}", 1)
    link = (
        BLOCKED_FIRST if fact.kind == BLOCKED else _place("exchanges" if fact.kind == UNROUTABLE else "queues", fact)
    )
    return _made(_severity(fact.kind), fact.kind, says, link, node, fact.vhost, fact.name)


def _severity(kind: str) -> Literal["bad", "warn"]:
    return "bad" if kind in OF_STOPPED else "warn"


def _damaged(fact: Fact, numbers: dict[str, float]) -> str:
    first, last = int(numbers["first"]), int(numbers["last"])
    which = f"message {first}, which is" if first == last else f"messages {first} to {last}, which are"
    return (
        f"{_queue(fact)} stops at {which} damaged on the disk: nothing behind is delivered until that is set aside "
        "(amqpd message quarantine)"
    )


def _broken(fact: Fact, _: dict[str, float]) -> str:
    return f"{_queue(fact)} is out of service until a restart: a bug was met in it, which the log has"


def _no_consumers(fact: Fact, numbers: dict[str, float]) -> str:
    age = f", the oldest for {said_time(numbers['oldest_s'])}" if "oldest_s" in fact.numbers else ""
    return f"{_wait(numbers)} in {_queue(fact)}{age}: nobody consumes"


def _prefetch(fact: Fact, numbers: dict[str, float]) -> str:
    consumers, unacked = int(numbers["consumers"]), int(numbers["unacked"])
    who = "its only consumer has" if consumers == 1 else f"its {consumers:,} consumers have"
    have = f"{who} {unacked:,} unacknowledged, all that the prefetch allows"
    idle = f"nothing was acknowledged for {said_time(numbers['idle_s'])}"
    return f"{_wait(numbers)} in {_queue(fact)}: {have}, and {idle}"


def _refusing(fact: Fact, numbers: dict[str, float]) -> str:
    bounds = (("max_length", "messages"), ("max_length_bytes", "bytes"))
    said = ", ".join(f"at most {int(numbers[name]):,} {unit}" for name, unit in bounds if name in fact.numbers)
    full = f"is full ({said})" if said else "is full"
    refused = f"{_count(numbers['refused'], 'publish', 'publishes')}{_lately(numbers)}"
    return f"{_queue(fact)} {full} and refused {refused}{'' if numbers['consumers'] else ': nobody consumes'}"


def _dead_letters(fact: Fact, numbers: dict[str, float]) -> str:
    came = int(numbers["came"])
    nobody = "" if numbers["consumers"] else ": nobody consumes"
    return (
        f"{_count(came, 'dead letter')} came to {_queue(fact)}{_lately(numbers)}, and "
        f"{_count(numbers['ready'], 'message')} {'waits' if numbers['ready'] == 1 else 'wait'} there{nobody}"
    )


def _unroutable(fact: Fact, numbers: dict[str, float]) -> str:
    outcomes = [(int(numbers[name]), name) for name in ("dropped", "returned", "nacked") if numbers[name]]
    total = sum(count for count, _ in outcomes)
    exchange = f"exchange '{fact.name}'" if fact.name else "the default exchange"
    said = ", ".join(f"{count:,} {name}" for count, name in outcomes)
    return f"{_count(total, 'message')} to {exchange}{_in(fact)} reached no queue{_lately(numbers)}: {said}"


def _blocked(_: Fact, numbers: dict[str, float]) -> str:
    count = int(numbers["connections"])
    what = "what it publishes waits" if count == 1 else "what they publish waits"
    return f"{_count(count, 'connection')} {'is' if count == 1 else 'are'} blocked: {what}"


def _journal(fact: Fact, numbers: dict[str, float]) -> str:
    waits = {
        "disk": "for the disk, which had as much to write as may wait for it",
        "majorities": "for other nodes: most of those that keep copies were too far behind",
        "numbers": "for sequence numbers, which no majority of a source had reserved",
    }
    lately = f"at each look of the last {said_time(numbers['seconds'])}"
    return f"{waits.get(fact.name, 'for the journal, which was full')} {lately}"


def _cut_off(node: str, numbers: dict[str, float]) -> str:
    sources = _count(numbers["sources"], "source")
    return (
        f"node {node} is cut off: it leads, or gave up, {sources} of which no majority of the copies answers, and "
        "clients of these queues wait"
    )


SENTENCES = {
    DAMAGED: _damaged,
    BROKEN: _broken,
    NO_CONSUMERS: _no_consumers,
    PREFETCH: _prefetch,
    REFUSING: _refusing,
    DEAD_LETTERS: _dead_letters,
    UNROUTABLE: _unroutable,
    BLOCKED: _blocked,
}


def _queue(fact: Fact) -> str:
    return f"queue '{fact.name}'{_in(fact)}"


def _in(fact: Fact) -> str:
    return "" if fact.vhost == "/" else f" in virtual host '{fact.vhost}'"


def _wait(numbers: dict[str, float]) -> str:
    ready = int(numbers["ready"])
    return f"{_count(ready, 'message')} {'waits' if ready == 1 else 'wait'}"


def _lately(numbers: dict[str, float]) -> str:
    return f" in the last 10 min (last {said_time(numbers['last_s'])} ago)"


def _count(number: float, one: str, many: str = "") -> str:
    return f"{int(number):,} {one if int(number) == 1 else many or one + 's'}"


def _place(of: str, fact: Fact) -> str:
    name = "amq.default" if of == "exchanges" and not fact.name else fact.name
    parts = (quote(each.encode("utf-8", "surrogateescape"), safe="") for each in (fact.vhost, name))
    return f"#/{of}/{'/'.join(parts)}"
