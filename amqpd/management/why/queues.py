"""Why a queue is as it is, in words: what waits and for whom, what is lost and where it went.

What comes in: a queue; or the facts of a queue, of its consumers, the alarms that are on. What goes out: sentences;
the first says what matters most.
Rules: 1. A sentence says a cause, with its numbers, or nothing: there is no advice for a queue that is well. 2.
Consumers are looked at in steps, and told by their number.
Not here: the facts (`figures/queue_facts.py`), who may ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from amqpd.management.alarms import kinds
from amqpd.management.figures.conditions import Consuming, Held, consuming
from amqpd.management.figures.inventory import queue_row
from amqpd.management.messages.leader_queues import why_unled
from amqpd.management.pacing import each
from amqpd.management.running import Running
from amqpd.queues.consumer import Subscriber
from amqpd.session.consumers import Consumer

Row = Mapping[str, Any]

HELD: dict[Held, str] = {
    "prefetch": "has as many unacknowledged messages as its prefetch allows",
    "shared": "shares a prefetch with others of its channel, which is used up",
    "slow": "does not read fast enough what it was sent",
    "waits": "waits for the queue's single active consumer to go",
}
LOST = {
    "expired": "expired",
    "dropped": "dropped, because the queue was full",
    "delivery_limit": "given up, having come back too often",
    "rejected": "rejected by a consumer",
}
UNITS = ((86_400, "days"), (3_600, "h"), (60, "min"))


async def explained(on: Running, vhost: str, name: str, *, names_consumers: bool) -> list[str]:
    """Of a queue that is there. `names_consumers`: the caller may know those of other users. Raises NotFound."""
    queue = on.queue(vhost, name)
    if queue.is_remote:
        leader = on.node.sources.leader_of(queue.record)
        led = f"node '{leader}' leads it" if leader else f"no node leads it at present: {why_unled(queue.record)}"
        return [f"{led}. What is in it is not known here"]
    held = await each(queue.subscribers(), _consuming)
    if not names_consumers:
        held = [replace(one, name="") for one in held]
    return sentences(queue_row(on.node, queue), held, kinds(on))


def _consuming(subscriber: Subscriber) -> Consuming | None:
    return consuming(subscriber) if isinstance(subscriber, Consumer) else None


def sentences(queue: Row, consumers: Sequence[Consuming], alarms: Sequence[str]) -> list[str]:
    """`queue` as in `queue_facts`; `alarms`: the kinds that are on."""
    waiting = (f"publishers wait: the {kind} alarm is on" for kind in alarms)
    return [*_service(queue), *waiting, *_rest(queue, consumers)]


def _service(queue: Row) -> Iterator[str]:
    if queue["out_of_service"]:
        yield f"it is out of service: {queue['out_of_service']}"
    if queue["fenced"]:
        yield "some of its messages are damaged on the disk: `amqpd message quarantine` takes them out"


def _rest(queue: Row, consumers: Sequence[Consuming]) -> Iterator[str]:
    ready, dying = queue["messages_ready"], queue["messages_dlx"]
    unacked = queue["messages_unacknowledged"] - dying
    if ready:
        yield _waiting(queue, consumers)
    elif unacked:
        yield f"nothing is ready: {_messages(unacked)} {_is(unacked)} with consumers, and not acknowledged"
    elif not dying:
        yield from _empty(queue)
    if dying:
        yield _dying(queue, dying)
    yield from _losses(queue)
    if refused := queue["totals"]["refused"]:
        was = "was" if refused == 1 else "were"
        yield f"{_messages(refused)} {was} refused: the queue was full ({_bounds(queue)})"


def _waiting(queue: Row, consumers: Sequence[Consuming]) -> str:
    ready, age_s = queue["messages_ready"], queue["oldest_message_age_s"]
    waits = f"{_messages(ready)} {'waits' if ready == 1 else 'wait'}"
    since = "" if age_s is None else f", the oldest for {duration_text(age_s)}"
    if not consumers:
        return f"{waits}{since}: nobody consumes"
    free = sum(not each.held for each in consumers)
    if free:
        takes = "1 consumer takes" if free == 1 else f"{free:,} consumers take"
        rates = queue["message_stats"]
        return (
            f"{waits}{since}: {takes} {rates['deliver_get_details']['rate']:,} a second, while "
            f"{rates['publish_details']['rate']:,} come"
        )
    if len(consumers) == 1:
        [only] = consumers
        named = f", {only.name}," if only.name else ""
        return f"{waits}{since}: the only consumer{named} {HELD[only.held]}{_full(only)}"
    causes = Counter(each.held for each in consumers).most_common()
    told = "; ".join(f"{count:,} of them: each {HELD[held]}" for held, count in causes)
    return f"{waits}{since}: no consumer can take more. {told}"


def _dying(queue: Row, count: int) -> str:
    """Nobody has these, though they are among those that are not acknowledged."""
    exchange = queue["settings"].get("dead_letter_exchange")
    behind = "" if exchange is None else f" behind the dead letter exchange '{exchange or 'amq.default'}'"
    waits, them = ("waits", "it") if count == 1 else ("wait", "them")
    return (
        f"{_messages(count)} that died {waits} here, because no queue{behind} takes {them} now: none is bound, or "
        "they are full, out of service, or led by another node"
    )


def _full(only: Consuming) -> str:
    return f" ({only.unacked:,} of {only.prefetch:,})" if only.held == "prefetch" else ""


def _empty(queue: Row) -> Iterator[str]:
    totals = queue["totals"]
    if not totals["accepted"]:
        yield "nothing came to it since it was made, or since the broker began"
        return
    ways = ("acked", "purged", "withdrawn", *LOST)
    left = ", ".join(f"{totals[way]:,} {way.replace('_', ' ')}" for way in ways if totals[way])
    came = _messages(totals["accepted"])
    yield f"it is empty: {came} came, and left it" + (f" ({left})" if left else "")


def _losses(queue: Row) -> Iterator[str]:
    exchange = queue["settings"].get("dead_letter_exchange")
    for way, said in LOST.items():
        count = queue["totals"][way]
        if not count:
            continue
        why = f" ({bound})" if (bound := _bound(queue, way)) else ""
        went = "there is no dead letter exchange" if exchange is None else _dead_letters(exchange)
        yield f"{_messages(count)} {said}{why}: {went}"


def _dead_letters(exchange: str) -> str:
    return f"to the dead letter exchange '{exchange or 'amq.default'}'"


def _bound(queue: Row, way: str) -> str:
    settings = queue["settings"]
    if way == "dropped":
        return _bounds(queue)
    if way == "delivery_limit":
        return f"{settings['delivery_limit']} deliveries" if "delivery_limit" in settings else ""
    if way == "expired" and "message_ttl_ms" in settings:
        return f"its messages live for {duration_text(settings['message_ttl_ms'] / 1000)}"
    return ""


def _bounds(queue: Row) -> str:
    settings = queue["settings"]
    bounds = (("max_length", "messages"), ("max_length_bytes", "bytes"))
    return ", ".join(f"at most {settings[name]:,} {unit}" for name, unit in bounds if name in settings)


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def duration_text(seconds: float) -> str:
    """As in "12 min"."""
    for size, unit in UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
