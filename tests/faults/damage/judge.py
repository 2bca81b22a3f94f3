"""What may become of a damaged data directory: judges what one round saw against the book of its image.

What comes in: a `Book`, an `Outcome`. What goes out: a `Ruling`: one of OUTCOMES, and for NOT ALLOWED the
reasons.
Rules: 1. Allowed is: everything due comes out; a start that is refused in one sentence and changes nothing; a
queue that is reported as fenced, after it gave the messages before the damage; messages that are listed as
orphans. 2. Never allowed: a due message that is in none of these places; a settled message, or a deleted queue,
that is back; a body that was never published; a message twice; a traceback; a broker that ends while it serves; a
hang. 3. Whatever is missing and not said is a loss, wherever the damage was.
Not here: how it was seen (`rounds.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from amqpd.checking.report import DAMAGE, NOTE
from amqpd.checking.salvage import BACK, LOST

from ..history import ranges
from .books import Book

RECOVERED, REFUSED, FENCED, PARKED, NOT_ALLOWED = "recovered", "refused", "fenced", "parked", "NOT ALLOWED"
OUTCOMES = (RECOVERED, REFUSED, FENCED, PARKED, NOT_ALLOWED)
NOTHING = "nothing"
CHECKED = (DAMAGE, NOTE, NOTHING)
"""what `amqpd check` found before the broker was started"""
STARTS_MAX = 3
UNHARMED = "nothing"
"""in place of a damaged file's name"""
USAGE = 2
"""exit code of a command line that is not understood"""
# Files without which every message can be served.
NEVER_NEEDED = ("audit", "reserve", "metadata.reserve", "amqpd.lock")


class Delivered(NamedTuple):
    """A message that came out: its id, and how often it says that it came back before (0 if it does not say)."""

    message: str
    count: int = 0
    redelivered: bool = False


@dataclass
class Outcome:
    """`exit_code` and `changed` (names of files) are of a start that was refused. `ended` are exit codes of
    brokers that ended while serving; they were started again, up to STARTS_MAX. `rows` are those of `queue list`,
    `orphans` those of `orphans list`. `delayed_fenced` are delayed messages that `status` counts
    behind a fence. `again` is what came out after a restart in good order; None: not tried. `checked` is what
    `amqpd check` said before; empty: not asked."""

    exit_code: int | None = None
    changed: list[str] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    hung: str = ""
    log: list[str] = field(default_factory=list)
    deliveries: dict[str, list[Delivered]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    orphans: list[dict[str, Any]] = field(default_factory=list)
    delayed_fenced: int = 0
    adopted: dict[str, list[Delivered]] = field(default_factory=dict)
    left: int = 0
    unbound: list[str] = field(default_factory=list)
    again: dict[str, list[Delivered]] | None = None
    checked: str = ""

    @property
    def sentences(self) -> list[str]:
        """Lines that are not the log's, and lines of the log that say why the broker ends."""
        return [line for line in self.log if line.strip() and (not _is_log(line) or " level=critical " in line)]


class Ruling(NamedTuple):
    outcome: str
    reasons: list[str]


def judge(book: Book, seen: Outcome, damaged: str = "") -> Ruling:
    """`damaged` is the file: some must never keep messages from being served."""
    reasons = _of_the_process(seen)
    if seen.exit_code is not None:
        reasons += _of_the_refusal(seen)
        if damaged.startswith(NEVER_NEEDED):
            reasons.append(f"refused for {damaged}, which no message needs: {seen.sentences}")
        outcome = REFUSED
    else:
        fenced = {name for name, row in seen.rows.items() if row.get("fenced")}
        reasons += _of_what_came(book, seen)
        reasons += _of_what_did_not_come(book, seen, fenced)
        reasons += _of_the_orphans(book, seen)
        reasons += _of_the_definitions(book, seen)
        outcome = FENCED if fenced or seen.delayed_fenced else PARKED if seen.orphans else RECOVERED
    reasons += _of_the_check(seen, outcome, damaged)
    return Ruling(NOT_ALLOWED if reasons else outcome, reasons)


def _of_the_check(seen: Outcome, outcome: str, damaged: str) -> list[str]:
    """It finds offline whatever the broker then refuses, fences or parks; and nothing where nothing is."""
    if seen.checked and seen.checked not in CHECKED:
        return [f"'amqpd check' {seen.checked}"]
    if damaged == UNHARMED and seen.checked not in ("", NOTHING):
        return [f"'amqpd check' found {seen.checked} where nothing is wrong"]
    if seen.checked == NOTHING and outcome in (REFUSED, FENCED, PARKED):
        return [f"'amqpd check' found nothing, and the broker: {outcome}"]
    if seen.checked == NOTE and outcome in (REFUSED, FENCED):
        return [f"'amqpd check' found no damage, and the broker: {outcome}"]
    return []


def judge_accepted(book: Book, seen: Outcome) -> list[str]:
    """What is wrong with a start of `amqpd serve --accept-loss`, after one that was refused: messages may be missing,
    and settled ones back, as the operator was told; the rest holds as always."""
    reasons = _of_the_process(seen)
    if seen.exit_code is not None:
        reasons += _of_the_refusal(seen)
    if seen.exit_code == USAGE:
        reasons.append("there is no such option")
    reasons += [f"wrong: {each}" for each in seen.wrong[:5]]
    known = {message for messages in (*book.due.values(), *book.settled.values()) for message in messages}
    for queue, came in seen.deliveries.items():
        ids = [each.message for each in came]
        if len(set(ids)) < len(ids):
            reasons.append(f"twice out of {queue}: {_said([each for each in set(ids) if ids.count(each) > 1])}")
        # What was in a queue that is deleted may be back with the queue, after the loss of its deletion.
        if strange := [each for each in ids if each not in known and each.rpartition(":")[0] not in book.gone]:
            reasons.append(f"unexpected in {queue}: {_said(strange)}")
    return [f"with --accept-loss: {reason}" for reason in reasons]


def judge_repaired(book: Book, seen: Outcome, said: Collection[str]) -> list[str]:
    """What is wrong with a start after `amqpd check --repair` that said that the broker can start, and whether
    messages are LOST or may come BACK (`said`): only what was said may be so, and what comes back is flagged."""
    reasons = _of_the_process(seen)
    if seen.exit_code is not None:
        return [f"after a repair: refused, {seen.sentences}"]
    fenced = {name for name, row in seen.rows.items() if row.get("fenced")}
    came = _of_what_came(book, seen)
    if BACK in said:
        came = [each for each in came if not each.startswith(("settled messages back", "wrong delivery count"))]
        for queue, messages in seen.deliveries.items():
            settled = set(book.settled.get(queue, ())) - set(book.due.get(queue, ()))
            if bare := [each.message for each in messages if each.message in settled and not each.redelivered]:
                reasons.append(f"back in {queue}, and not flagged as redelivered: {_said(bare)}")
    reasons += came
    if LOST not in said:
        reasons += _of_what_did_not_come(book, seen, fenced)
    reasons += _of_the_orphans(book, seen)
    return [f"after a repair: {reason}" for reason in reasons]


def _is_log(line: str) -> bool:
    return line.startswith("time=") and " level=" in line


def _of_the_process(seen: Outcome) -> list[str]:
    reasons = []
    if seen.hung:
        reasons.append(f"a hang: {seen.hung}")
    if any("Traceback (most recent call last)" in line for line in seen.log):
        reasons.append("a traceback")
    if seen.ended:
        loop = "a restart loop" if len(seen.ended) >= STARTS_MAX else "ended while serving"
        said = [line for line in seen.log if " level=critical " in line]
        reasons.append(f"{loop}, exit codes {seen.ended}: {(said or ['(nothing said)'])[-1][-300:]}")
    return reasons


def _of_the_refusal(seen: Outcome) -> list[str]:
    reasons = []
    if seen.exit_code is None or seen.exit_code <= 0:
        reasons.append(f"refused with exit code {seen.exit_code}")
    if len(seen.sentences) != 1:
        reasons.append(f"refused with {len(seen.sentences)} sentences: {seen.sentences}")
    if seen.changed:
        reasons.append(f"refused, and changed {', '.join(seen.changed)}")
    return reasons


def _of_what_came(book: Book, seen: Outcome) -> list[str]:
    reasons = [f"wrong: {each}" for each in seen.wrong[:5]]
    settled = {message for queue, messages in book.settled.items() for message in messages}
    for queue, came in seen.deliveries.items():
        due = set(book.due.get(queue, ()))
        for source, dead_letters in book.dead_letters.items():
            due |= set(book.due[source]) if dead_letters == queue else set()
        strange = [each.message for each in came if each.message not in due]
        back = [message for message in strange if message in book.settled.get(queue, ())]
        other = [message for message in strange if message not in back]
        if back:
            reasons.append(f"settled messages back in {queue}: {_said(back)}")
        if other:
            known = "settled elsewhere" if settled.issuperset(other) else "unexpected"
            reasons.append(f"{known} in {queue}: {_said(other)}")
        if queue not in book.unordered and queue in book.due:
            places = {message: place for place, message in enumerate(book.due[queue])}
            order = [places[each.message] for each in came if each.message in places]
            if order != sorted(order):
                reasons.append(f"out of order in {queue}")
        expected = book.counts.get(queue, {})
        wrong = [each.message for each in came if each.message in expected and each.count != expected[each.message]]
        if wrong:
            reasons.append(f"wrong delivery count in {queue}: {_said(wrong)}")
    for source in book.due:
        places_of = [source, book.dead_letters.get(source, source)]
        total = Counter(each.message for queue in set(places_of) for each in seen.deliveries.get(queue, ()))
        twice = [message for message in book.due[source] if total[message] > 1]
        if twice:
            reasons.append(f"twice out of {source}: {_said(twice)}")
    for queue, came in (seen.again or {}).items():
        first = {each.message for each in seen.deliveries.get(queue, ())}
        back = [each.message for each in came if each.message in first]
        if back:
            reasons.append(f"taken, and back after a restart in {queue}: {_said(back)}")
    return reasons


def _of_what_did_not_come(book: Book, seen: Outcome, fenced: set[str]) -> list[str]:
    reasons = []
    adopted = {each.message for came in seen.adopted.values() for each in came}
    unclaimed: list[str] = []
    delayed = seen.delayed_fenced
    for queue, due in book.due.items():
        came = {each.message for each in seen.deliveries.get(queue, ())}
        came |= {each.message for each in seen.deliveries.get(book.dead_letters.get(queue, queue), ())}
        missing = [message for message in due if message not in came]
        if not missing:
            continue
        if queue in fenced or book.dead_letters.get(queue) in fenced:
            reasons += _behind_the_fence(book, seen, queue, missing)
            continue
        missing = [message for message in missing if message not in adopted]
        if queue in book.delayed and len(missing) <= delayed:
            delayed -= len(missing)
        elif missing and queue not in seen.rows and len(unclaimed) + len(missing) <= seen.left:
            unclaimed += missing
        elif missing:
            reasons.append(f"lost from {queue}: {_said(missing)}")
    return reasons


def _of_the_orphans(book: Book, seen: Outcome) -> list[str]:
    """Each gives what is due, once and in its order; nothing of it came out of a queue too."""
    reasons = []
    due = {message: place for messages in book.due.values() for place, message in enumerate(messages)}
    unordered = {message for queue in book.unordered for message in book.due.get(queue, ())}
    came = Counter(
        message for queue in book.due for message in {each.message for each in seen.deliveries.get(queue, ())}
    )
    copies = Counter(message for messages in book.due.values() for message in messages)
    for orphan, messages in seen.adopted.items():
        ids = [each.message for each in messages]
        if strange := [message for message in ids if message not in due]:
            reasons.append(f"not due, and in orphan {orphan}: {_said(strange)}")
        places = [due[message] for message in ids if message in due and message not in unordered]
        if places != sorted(places):
            reasons.append(f"out of order in orphan {orphan}")
        came.update(ids)
    if seen.adopted and (twice := [message for message, count in came.items() if count > copies[message] > 0]):
        reasons.append(f"adopted, and elsewhere too: {_said(twice)}")
    return reasons


def _behind_the_fence(book: Book, seen: Outcome, queue: str, missing: list[str]) -> list[str]:
    """The good ones before the damage were given; the others are held, and counted, or died when their time was over:
    the dead letters are another queue's."""
    reasons = []
    due = book.due[queue]
    given = {each.message for each in seen.deliveries.get(queue, ())}
    skipped = [message for message in due[due.index(missing[0]) :] if message in given]
    if queue not in book.unordered and skipped:
        reasons.append(f"fenced {queue} gave messages behind its first missing one {missing[0]}: {_said(skipped)}")
    held = sum(
        int(seen.rows[name]["messages"]) for name in {queue, book.dead_letters.get(queue, queue)} & set(seen.rows)
    )
    if held < len(missing):
        reasons.append(f"fenced {queue} holds {held} messages, {len(missing)} are missing: {_said(missing)}")
    return reasons


def _of_the_definitions(book: Book, seen: Outcome) -> list[str]:
    reasons = [f"deleted queue is back: {queue}" for queue in book.gone if queue in seen.rows]
    said = bool(seen.orphans) or any(
        "metadata" in line and (" level=warning " in line or " level=error " in line) for line in seen.log
    )
    missing = [queue for queue in book.due if queue not in seen.rows]
    if (missing or seen.unbound) and not said:
        reasons.append(f"definitions are gone, and nothing is said: {', '.join([*missing, *seen.unbound])}")
    return reasons


def _said(messages: list[str]) -> str:
    """Ids by leader, folded."""
    leaders: dict[str, list[int]] = {}
    for message in messages:
        origin, _, number = message.rpartition(":")
        leaders.setdefault(origin, []).append(int(number))
    parts = [f"{origin} {ranges(numbers)}" for origin, numbers in leaders.items()]
    return f"{len(messages)} ({'; '.join(parts)[:200]})"
