"""Facts that may need somebody: the form in which a node tells them, to itself and to the others of its cluster, and
the sentence for each.

What comes in: rows. What goes out: the same, checked; sentences.
Rules: 1. One form for all kinds, so that a row of another node is checked in one place. 2. Numbers have their unit in
their names; `MORE` says how many facts of a kind are not told one by one. 3. A number that another node does not tell
is 0 in its sentence.
Not here: where they come from (`watch.py`), which of them are shown, and in which order (`needs.py`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final, NamedTuple

from amqpd.management.why.queues import duration_text

DAMAGED: Final = "damaged"
"""a queue that stops at damaged messages: `first`, `last`, `messages` that are known to be"""
BROKEN: Final = "broken"
"""a queue in which a bug was met: nothing is done with it until a restart"""
NO_CONSUMERS: Final = "no_consumers"
"""a queue in which messages wait, and nobody consumes: `ready`, `oldest_s`"""
PREFETCH: Final = "prefetch"
"""a queue in which messages wait, whose consumers acknowledge nothing: `ready`, `consumers`, `unacked`, `idle_s`"""
REFUSING: Final = "refusing"
"""a full queue: `refused`, `last_s`, `consumers`; `max_length`, `max_length_bytes` where it has them"""
DEAD_LETTERS: Final = "dead_letters"
"""a queue to which dead letters came: `came`, `last_s`, `ready`, `consumers`"""
UNROUTABLE: Final = "unroutable"
"""an exchange: `dropped`, `returned`, `nacked`, `last_s`"""
BLOCKED: Final = "blocked"
"""connections that an alarm blocks: `connections`"""
JOURNAL: Final = "journal"
"""publishers wait for the journal, at each look of `seconds`; `name` is the journal's reason"""
CUT_OFF: Final = "cut_off"
"""sources that the node leads, or gave up, of which no majority answers: `sources`"""
MORE: Final = "more"
"""of the kind `name`: `count`"""

OF_QUEUES = (DAMAGED, BROKEN, NO_CONSUMERS, PREFETCH, REFUSING, DEAD_LETTERS)
WEIGHED_BY = {
    DAMAGED: ("messages",),
    NO_CONSUMERS: ("ready",),
    PREFETCH: ("ready",),
    REFUSING: ("refused",),
    DEAD_LETTERS: ("came",),
    UNROUTABLE: ("dropped", "returned", "nacked"),
    BLOCKED: ("connections",),
    JOURNAL: ("seconds",),
    CUT_OFF: ("sources",),
}
"""which numbers say how much it matters"""
EACH_MAX = 5
"""facts of one kind that are told one by one"""


class Fact(NamedTuple):
    """One fact that may need an operator's attention: its kind, what it is about, and numbers with their units."""

    kind: str
    vhost: str
    name: str
    """of a queue or an exchange; of a kind for `MORE`; the reason for `JOURNAL`"""
    numbers: dict[str, float]

    @property
    def weight(self) -> float:
        """What matters most has most."""
        return sum(self.numbers.get(name, 0) for name in WEIGHED_BY.get(self.kind, ()))

    @property
    def row(self) -> dict[str, Any]:
        """The fact as an object of JSON."""
        return self._asdict()


def fact_of(row: dict[str, Any]) -> Fact:
    """Of a row that `across_nodes/rows.py` has checked."""
    return Fact(row["kind"], row["vhost"], row["name"], row["numbers"])


def sentence(fact: Fact, node: str, clustered: bool) -> str:
    """What a fact that this node tells means, without a full stop. `clustered`: there may be several nodes."""
    numbers, at = defaultdict(float, fact.numbers), f" at node {node}" if clustered else ""
    if fact.kind == CUT_OFF:
        return _cut_off(node, numbers)
    if fact.kind == JOURNAL:
        return _journal(fact, numbers, at)
    return _blocked(numbers, at) if fact.kind == BLOCKED else _OF_THINGS[fact.kind](fact, numbers)


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
    age = f", the oldest for {duration_text(numbers['oldest_s'])}" if "oldest_s" in fact.numbers else ""
    return f"{_wait(numbers)} in {_queue(fact)}{age}: nobody consumes"


def _prefetch(fact: Fact, numbers: dict[str, float]) -> str:
    consumers, unacked = int(numbers["consumers"]), int(numbers["unacked"])
    who = "its only consumer has" if consumers == 1 else f"its {consumers:,} consumers have"
    have = f"{who} {unacked:,} unacknowledged, all that the prefetch allows"
    idle = f"nothing was acknowledged for {duration_text(numbers['idle_s'])}"
    return f"{_wait(numbers)} in {_queue(fact)}: {have}, and {idle}"


def _refusing(fact: Fact, numbers: dict[str, float]) -> str:
    bounds = (("max_length", "messages"), ("max_length_bytes", "bytes"))
    said = ", ".join(f"at most {int(numbers[name]):,} {unit}" for name, unit in bounds if name in fact.numbers)
    full = f"is full ({said})" if said else "is full"
    refused = f"{counted(numbers['refused'], 'publish', 'publishes')}{_lately(numbers)}"
    return f"{_queue(fact)} {full} and refused {refused}{'' if numbers['consumers'] else ': nobody consumes'}"


def _dead_letters(fact: Fact, numbers: dict[str, float]) -> str:
    came = int(numbers["came"])
    nobody = "" if numbers["consumers"] else ": nobody consumes"
    return (
        f"{counted(came, 'dead letter')} came to {_queue(fact)}{_lately(numbers)}, and {_wait(numbers)} there{nobody}"
    )


def _unroutable(fact: Fact, numbers: dict[str, float]) -> str:
    outcomes = [(int(numbers[name]), name) for name in ("dropped", "returned", "nacked") if numbers[name]]
    total = sum(count for count, _ in outcomes)
    exchange = f"exchange '{fact.name}'" if fact.name else "the default exchange"
    said = ", ".join(f"{count:,} {name}" for count, name in outcomes)
    return f"{counted(total, 'message')} to {exchange}{_in(fact)} reached no queue{_lately(numbers)}: {said}"


def _blocked(numbers: dict[str, float], at: str) -> str:
    count = int(numbers["connections"])
    what = "what it publishes waits" if count == 1 else "what they publish waits"
    return f"{does(count, 'connection', 'is', 'are')} blocked{at}: {what}"


def _journal(fact: Fact, numbers: dict[str, float], at: str) -> str:
    waits = {
        "disk": "for the disk, which had as much to write as may wait for it",
        "majorities": "for other nodes: most of those that keep copies were too far behind",
        "numbers": "for sequence numbers, which no majority of a source had reserved",
    }
    lately = f"at each look of the last {duration_text(numbers['seconds'])}"
    return f"publishers wait{at} {waits.get(fact.name, 'for the journal, which was full')} {lately}"


def _cut_off(node: str, numbers: dict[str, float]) -> str:
    sources = counted(numbers["sources"], "source")
    return (
        f"node {node} is cut off: it leads, or gave up, {sources} of which no majority of the copies answers, and "
        "clients of these queues wait"
    )


_OF_THINGS = {
    DAMAGED: _damaged,
    BROKEN: _broken,
    NO_CONSUMERS: _no_consumers,
    PREFETCH: _prefetch,
    REFUSING: _refusing,
    DEAD_LETTERS: _dead_letters,
    UNROUTABLE: _unroutable,
}


def _queue(fact: Fact) -> str:
    return f"queue '{fact.name}'{_in(fact)}"


def _in(fact: Fact) -> str:
    return "" if fact.vhost == "/" else f" in virtual host '{fact.vhost}'"


def _wait(numbers: dict[str, float]) -> str:
    return does(numbers["ready"], "message", "waits", "wait")


def _lately(numbers: dict[str, float]) -> str:
    return f" in the last 10 min (last {duration_text(numbers['last_s'])} ago)"


def counted(number: float, one: str, many: str = "") -> str:
    """As in "1,200 queues"."""
    return f"{int(number):,} {one if int(number) == 1 else many or one + 's'}"


def does(number: float, subject: str, one: str, many: str) -> str:
    """As in "1 queue waits" and "2 queues wait"."""
    return f"{counted(number, subject)} {one if int(number) == 1 else many}"
