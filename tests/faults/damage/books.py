"""What is known of an image of a data directory: which messages must come out of it, and which must not.

What comes in: a maker of images writes down what it published, saw confirmed and settled. What goes out: `Book`,
which is kept beside the image as JSON; the content of every message, from its id.
Rules: 1. A message is `origin:number`; `origin` is who published it, numbers of a leader are used once. 2. Its body,
message id and header follow from its id. 3. A message is due in a queue when it was confirmed there and never
settled; settled when its acknowledgement was followed, on the same channel, by a confirm or by an orderly stop.
Others may come out.
Not here: making images (`images.py`), the judgement (`judge.py`).
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

HUGE_EVERY, BIG_EVERY = 401, 50
HUGE_BYTES, BIG_BYTES, SMALL_BYTES_MAX = 100_000, 20_000, 900


@dataclass
class Book:
    """`due`: queue -> ids in the order of the queue; `settled`: queue -> ids. `dead_letters`: queue -> its dead
    letter queue, where what is due may come out instead. `unordered`: queues that keep no order of publishes.
    `delayed`: queues that have their messages from `x-delay`. `counts`: queue -> id -> how often a due message came
    back.
    `gone`: queues whose deletion was answered. `bound`: exchange -> queues."""

    kind: str
    due: dict[str, list[str]] = field(default_factory=dict)
    settled: dict[str, list[str]] = field(default_factory=dict)
    dead_letters: dict[str, str] = field(default_factory=dict)
    unordered: list[str] = field(default_factory=list)
    delayed: list[str] = field(default_factory=list)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    bound: dict[str, list[str]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Book:
        return cls(**json.loads(path.read_text()))

    @property
    def queues(self) -> list[str]:
        return sorted({*self.due, *self.settled, *self.dead_letters.values()})


def message_id(origin: str, number: int) -> str:
    return f"{origin}:{number}"


@functools.lru_cache(maxsize=1 << 15)
def body_of(message: str) -> bytes:
    """A few bodies are larger than a page, and fewer larger than many pages."""
    digest = hashlib.sha256(message.encode()).hexdigest()
    number = int(message.rpartition(":")[2])
    if number % HUGE_EVERY == HUGE_EVERY - 1:
        size = HUGE_BYTES
    elif number % BIG_EVERY == BIG_EVERY - 1:
        size = BIG_BYTES
    else:
        size = 64 + int(digest[:6], 16) % (SMALL_BYTES_MAX - 64)
    head = f"{message}|"
    return (head + digest * (size // len(digest) + 1))[:size].encode()
