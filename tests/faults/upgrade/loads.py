"""What the version before is given, and what must come out of its data directory later.

What comes in: how many messages, how long times span. What goes out: `LOADS`, and for each message by its number what
it is (priority, delay, incarnation) and where it must come out.
Rules: 1. All of it follows from the number, so a book holds only when messages were sent. 2. Lives and delays are of
three kinds: over when the broker stops, over while it is opened, and so long that nobody waits for them.
Not here: playing it (`writing.py`), looking (`reading.py`), the judgement (`judge.py`).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pamqp import commands


def _dead_letters(queue: str) -> dict[str, Any]:
    return {"dead-letter-exchange": "", "dead-letter-routing-key": queue}


SHORT_MS = 1_500
LONG_MS = 3 * 3_600_000
HELD_MAX = 60_000
"""deliveries that a consumer holds: a prefetch is 16 bits"""
SHORT_QUEUE = 300
TTL_MS = 60_000
LATER = "later"
"""an exchange of the type x-delayed-message"""
RECEIPTS = "receipts"
FLEETING = "fleeting"
"""a queue that is not durable"""
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "limit": ("^short$", {"max-length": SHORT_QUEUE} | _dead_letters("short.dead")),
    "age": ("^aged$", {"message-ttl": TTL_MS} | _dead_letters("aged.dead")),
}
"""name -> (pattern, definition)"""

# Where a message must come out.
HERE, DEAD_LETTER, GONE, EITHER, HELD = "here", "dead_letter", "gone", "either", "held"


@dataclass(frozen=True)
class Load:
    """A queue. Functions are of a message's number; `kind` of (number, messages of the queue)."""

    queue: str
    share: int
    """per cent of all messages"""
    arguments: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    """for which messages are in `<queue>.dead`"""
    by_policy: bool = False
    """its dead letter exchange"""
    kind: Callable[[int, int], str] = lambda number, count: HERE
    flagged: Callable[[int, int], bool] = lambda number, count: False
    """whether it was delivered once, and came back"""
    life_ms: Callable[[int, int], int | None] = lambda number, span_ms: None
    delay_ms: Callable[[int, int], int | None] = lambda number, span_ms: None
    priority: Callable[[int], int | None] = lambda number: None
    persistent: Callable[[int], bool] = lambda number: True
    returns: Callable[[int], int] = lambda number: 0
    """how often a quorum queue has got it back"""
    ordered: bool = True
    consumed: bool = True

    @property
    def dead(self) -> str:
        return f"{self.queue}.dead" if self.reason else ""

    def declared(self) -> dict[str, Any]:
        if not self.reason or self.by_policy:
            return self.arguments
        return self.arguments | {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead}

    def lane(self, number: int) -> int:
        """Messages of one lane are in order; higher lanes go first."""
        return min(self.priority(number) or 0, int(self.arguments.get("x-max-priority", 0)))

    def properties(self, number: int, span_ms: int) -> commands.Basic.Properties:
        life_ms = None if self.by_policy else self.life_ms(number, span_ms)
        delay_ms = self.delay_ms(number, span_ms)
        return commands.Basic.Properties(
            delivery_mode=2 if self.persistent(number) else 1,
            expiration=None if life_ms is None else str(life_ms),
            headers=None if delay_ms is None else {"x-delay": delay_ms},
            priority=self.priority(number),
        )


def spread(number: int, span_ms: int) -> int:
    """Neighbours are far apart."""
    return 1 + number * 611 % max(1, span_ms)


def _times(number: int, span_ms: int) -> int:
    return (spread(number, SHORT_MS), spread(number, span_ms), LONG_MS)[number % 3]


def first_taken(count: int) -> int:
    return min(count // 2, HELD_MAX)


LOADS = (
    Load(
        "plain", 50,
        kind=lambda number, count: GONE if number < first_taken(count) and number % 3 else HERE,
        flagged=lambda number, count: number < first_taken(count),
    ),
    Load("ranked", 10, {"x-max-priority": 5}, priority=lambda number: number % 7),
    Load(
        "expiring", 8, reason="expired",
        kind=lambda number, count: EITHER if number % 4 else HERE,
        life_ms=lambda number, span_ms: _times(number // 4, span_ms) if number % 4 else None,
    ),
    Load(
        "waiting", 4, reason="expired", consumed=False, kind=lambda number, count: DEAD_LETTER,
        life_ms=lambda number, span_ms: span_ms // 2 + spread(number, span_ms // 2),
    ),
    Load("aged", 4, reason="expired", by_policy=True, kind=lambda *_: EITHER, life_ms=lambda *_: TTL_MS),
    Load(
        "delayed", 8, ordered=False, delay_ms=_times,
        kind=lambda number, count: HELD if number % 3 == 2 else HERE,
    ),
    Load(
        "short", 4, reason="maxlen", by_policy=True,
        kind=lambda number, count: HERE if number >= count - SHORT_QUEUE else DEAD_LETTER,
    ),
    Load(
        "judged", 3, reason="rejected",
        kind=lambda number, count: HERE if number % 3 else DEAD_LETTER,
        flagged=lambda number, count: number % 3 != 0,
    ),
    Load(
        "counted", 3, {"x-queue-type": "quorum", "x-delivery-limit": 20}, ordered=False,
        kind=lambda number, count: HERE if number % 10 and number % 9 else GONE,
        flagged=lambda number, count: True,
        returns=lambda number: 2,
    ),
    Load("held", 3, flagged=lambda number, count: number < first_taken(count)),
    Load(
        "beside", 3, persistent=lambda number: number % 2 == 0,
        kind=lambda number, count: GONE if number % 2 else HERE,
    ),
)  # fmt: skip


@dataclass
class Book:
    """What was published, and when. `sent` has a row for each batch of a queue: its first number, the clock before it
    was sent and after it was confirmed. `unknown`: further messages of `plain` of which nobody knows."""

    messages: int
    span_ms: int
    killed: bool
    sent: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    unknown: int = 0
    definitions: dict[str, Any] = field(default_factory=dict)

    def count(self, load: Load) -> int:
        return self.messages * load.share // 100

    def times(self, load: Load, number: int) -> tuple[int, int]:
        """The clock before the message was sent, and after it was confirmed."""
        rows = self.sent[load.queue]
        _, sent_ms, confirmed_ms = rows[bisect_right(rows, number, key=lambda row: row[0]) - 1]
        return sent_ms, confirmed_ms

    def kind(self, load: Load, number: int, now_ms: int) -> str:
        """Where it must come out, at this time."""
        kind = load.kind(number, self.count(load))
        if kind == HELD and self.times(load, number)[1] + LONG_MS < now_ms:
            return HERE
        return kind

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def read_book(path: Path) -> Book:
    said = json.loads(path.read_text())
    said["sent"] = {queue: [tuple(row) for row in rows] for queue, rows in said["sent"].items()}
    return Book(**said)
