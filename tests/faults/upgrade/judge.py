"""Judges what came out of a data directory of the version before.

What comes in: the book, what was seen. What goes out: sentences about what is wrong; none is good.
Rules: 1. Each confirmed persistent message came once, from where it had to. 2. In order, levels of a priority queue
descending. 3. `redelivered` is set where a delivery was proven to be on disk, and only there. 4. Nothing came before
its delay was over, no dead letter before its message expired, and no message long after. 5. What nobody was to see
again did not come. 6. Definitions are equal.
"""

from __future__ import annotations

from collections import Counter

from ..history import ranges
from .loads import DEAD_LETTER, EITHER, HELD, HERE, LOADS, SHORT_QUEUE, Book, Load
from .reading import Came, Seen

LATE_MS = 20_000
"""A message that was sent before it expired may be read so much later: it lies in sockets."""

ALLOWED = {HERE: ((1, 0),), DEAD_LETTER: ((0, 1),), EITHER: ((1, 0), (0, 1))}
"""How often it may come out of its queue, and of the dead letter queue"""
NOWHERE = ((0, 0),)


def judge(book: Book, seen: Seen) -> list[str]:
    wrong = _of_definitions(book, seen)
    for load in LOADS:
        wrong += _of_load(book, load, seen)
    left = {queue: count for queue, count in seen.left.items() if count}
    again = {queue: count for queue, count in seen.again.items() if count}
    if left or again:
        wrong.append(f"left in queues: {left}, after another start {again}")
    held = sum(book.kind(load, number, seen.began_ms) == HELD for load in LOADS for number in range(book.count(load)))
    if seen.delayed != held:
        wrong.append(f"{seen.delayed} messages are delayed, {held} should be")
    if seen.fleeting:
        wrong.append("a queue that is not durable came back")
    if seen.limited != SHORT_QUEUE:
        wrong.append(f"the policy lets {seen.limited} messages into short, {SHORT_QUEUE} should be")
    return wrong


def _of_definitions(book: Book, seen: Seen) -> list[str]:
    kinds = ("queues", "exchanges", "bindings", "policies", "users", "permissions", "vhosts")
    durable = {each["name"] for each in book.definitions["queues"]}
    wrong = []
    for kind in kinds:
        before, after = book.definitions[kind], seen.definitions[kind]
        if kind == "bindings":
            before = [each for each in before if each["destination"] in durable]
        if before != after:
            wrong.append(f"{kind}: {before} became {after}")
    return wrong


def _of_load(book: Book, load: Load, seen: Seen) -> list[str]:
    here, dead_letters = seen.queues[load.queue], seen.queues.get(load.dead, [])
    wrong = [
        f"{each.origin} {each.number} came from {load.queue}"
        for each in here + dead_letters
        if each.origin != load.queue
    ]
    wrong += _of_places(book, load, seen.began_ms, here, dead_letters)
    wrong += _of_order(load, here, dead_letters)
    wrong += _of_marks(book, load, here, dead_letters)
    return wrong + _of_times(book, load, here, dead_letters)


def _of_places(book: Book, load: Load, began_ms: int, here: list[Came], dead_letters: list[Came]) -> list[str]:
    count = book.count(load)
    unknown = range(count, count + book.unknown) if load.queue == "plain" else range(0)
    in_queue, in_dead_letters = (Counter(each.number for each in came) for came in (here, dead_letters))
    found: dict[str, list[int]] = {"lost": [], "twice": [], "in the wrong place": []}
    for number in sorted({*range(count), *in_queue, *in_dead_letters}):
        times = in_queue[number], in_dead_letters[number]
        if number < count:
            allowed = ALLOWED.get(book.kind(load, number, began_ms), NOWHERE)
        else:
            allowed = ((0, 0), (1, 0)) if number in unknown else NOWHERE
        if times not in allowed:
            name = (
                "lost"
                if sum(times) == 0
                else "in the wrong place"
                if allowed == NOWHERE or sum(times) == 1
                else "twice"
            )
            found[name].append(number)
    return [f"{load.queue}: {len(some)} {name}: {_said(some)}" for name, some in found.items() if some]


def _of_order(load: Load, here: list[Came], dead_letters: list[Came]) -> list[str]:
    if not load.ordered:
        return []
    wrong = []
    order = [(-load.lane(each.number), each.number) for each in here]
    if order != sorted(order):
        wrong.append(f"{load.queue}: out of order")
    # Messages expire each at its time.
    numbers = [each.number for each in dead_letters]
    if load.reason != "expired" and numbers != sorted(numbers):
        wrong.append(f"{load.dead}: out of order")
    return wrong


def _of_marks(book: Book, load: Load, here: list[Came], dead_letters: list[Came]) -> list[str]:
    """Flags, delivery counts, deaths and priorities."""
    count, wrong = book.count(load), []
    flags = [each.number for each in here if each.redelivered != load.flagged(each.number, count)]
    counts = [each.number for each in here if each.returns != load.returns(each.number)]
    levels = [
        each.number for each in here if each.priority is not None and each.priority != load.priority(each.number)
    ]
    deaths = [
        each.number for each in dead_letters if each.deaths != [(load.queue, load.reason, 1)] or each.expiration
    ]
    for name, numbers in (("redelivered", flags), ("count", counts), ("priority", levels), ("x-death", deaths)):
        if numbers:
            wrong.append(f"{load.queue}: {len(numbers)} with a wrong {name}: {_said(numbers)}")
    return wrong


def _of_times(book: Book, load: Load, here: list[Came], dead_letters: list[Came]) -> list[str]:
    """Delays and lifetimes, by the clocks of publisher and receiver."""
    early, late = [], []
    for each in here:
        if not 0 <= each.number < book.count(load):
            continue
        sent_ms, confirmed_ms = book.times(load, each.number)
        delay_ms, life_ms = load.delay_ms(each.number, book.span_ms), load.life_ms(each.number, book.span_ms)
        if delay_ms is not None and each.at_ms < sent_ms + delay_ms:
            early.append(each.number)
        if life_ms is not None and each.at_ms > confirmed_ms + life_ms + LATE_MS:
            late.append(each.number)
    for each in dead_letters:
        life_ms = load.life_ms(each.number, book.span_ms)
        if life_ms is not None and each.at_ms < book.times(load, each.number)[0] + life_ms:
            early.append(each.number)
    named = (("before its time", early), ("long after it expired", late))
    return [f"{load.queue}: {len(some)} {name}: {_said(some)}" for name, some in named if some]


def _said(numbers: list[int]) -> str:
    return ranges(numbers)[:300]
