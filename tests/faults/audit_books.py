"""The audit log of a run beside what its clients saw: each confirm and each drained message has its events.

What comes in: the log's Parquet files, a history, in which incarnation of the broker each round took place. What goes
out: sentences about what is not there.
Rules: 1. A publisher's messages are known in the log by its connection and their confirm tags, which count from 1 in
each incarnation like the publisher's own. 2. A dead letter and what was delayed are followed back to what the
publisher had sent.
Not here: whether the books add up (the job `conservation`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from .history import CONFIRMED, History

LINKS = ("dead_lettered", "released", "moved")
MESSAGE = ("queue_id", "epoch", "first", "count")
Message = tuple[int, int, int]
"""queue_id, epoch, number"""


@dataclass
class Rounds:
    """`begun` has for each incarnation of the broker the sequence with which each publisher began in it."""

    data_dir: Path
    begun: dict[int, dict[str, int]] = field(default_factory=dict)

    def begin(self, history: History) -> None:
        """The broker runs, and the workers are about to start."""
        self.begun[self.incarnation()] = {name: publisher.attempted for name, publisher in history.publishers.items()}

    def incarnation(self) -> int:
        return int(json.loads((self.data_dir / "audit" / "incarnations.json").read_text())["incarnation"])


class Books:
    def __init__(self, events: Path) -> None:
        self.published: dict[tuple[int, str], set[int]] = defaultdict(set)
        """(incarnation, connection) -> confirm tags"""
        self.confirmed: dict[tuple[int, str], set[int]] = defaultdict(set)
        self.connections: dict[tuple[int, str, str], set[str]] = defaultdict(set)
        """(incarnation, exchange, routing key) -> who published so"""
        self.routed: dict[Message, tuple[int, int, str, int]] = {}
        """-> incarnation, publication, connection, confirm tag"""
        self.came_of: dict[tuple[int, int], Message] = {}
        """(incarnation, publication) of what the broker published itself -> what it was"""
        self.delivered: dict[tuple[int, str], set[Message]] = defaultdict(set)
        """(incarnation, queue)"""
        for path in sorted(events.glob("date=*/hour=*/*.parquet")):
            for row in pq.ParquetFile(path).read().to_pylist():
                self._take(row)

    def _take(self, row: dict[str, Any]) -> None:
        event, incarnation, count = row["event"], row["incarnation"], row["count"]
        if event in ("published", "confirmed") and row["confirm_tag"]:
            tags = range(row["confirm_tag"], row["confirm_tag"] + count)
            (self.published if event == "published" else self.confirmed)[incarnation, row["connection"]].update(tags)
            if event == "published":
                self.connections[incarnation, row["exchange"], row["routing_key"]].add(row["connection"])
        elif event == "routed":
            for at, message in enumerate(_messages(row)):
                tag = row["confirm_tag"] + at if row["confirm_tag"] else 0
                self.routed[message] = incarnation, row["publication"] + at, row["connection"] or "", tag
        elif event in LINKS and row["publication"]:
            for at, message in enumerate(_messages(row)):
                self.came_of[incarnation, row["publication"] + at] = message
        elif event == "delivered":
            self.delivered[incarnation, row["queue"]].update(_messages(row))

    def origin(self, message: Message) -> tuple[int, str, int] | None:
        """(incarnation, connection, confirm tag) with which a client published it; None when the log does not say."""
        seen = set()
        while message not in seen:
            seen.add(message)
            routed = self.routed.get(message)
            if routed is None:
                return None
            incarnation, publication, connection, tag = routed
            if tag:
                return incarnation, connection, tag
            if (incarnation, publication) not in self.came_of:
                return None
            message = self.came_of[incarnation, publication]
        return None

    def publisher_of(self, incarnation: int, exchange: str, routing_key: str) -> str:
        """The connection; empty when nobody published so."""
        found = self.connections.get((incarnation, exchange, routing_key), set())
        assert len(found) <= 1, found
        return next(iter(found), "")


def missing_from(books: Books, history: History, rounds: Rounds, routes: dict[str, tuple[str, str]]) -> list[str]:
    """What clients saw and the log does not have. `routes`: publisher -> exchange, routing key."""
    incarnations, found = sorted(rounds.begun), []
    whose: dict[tuple[int, str], tuple[str, int]] = {}
    for at, incarnation in enumerate(incarnations):
        for name, publisher in history.publishers.items():
            first = rounds.begun[incarnation][name]
            end = rounds.begun[incarnations[at + 1]][name] if at + 1 < len(incarnations) else publisher.attempted
            connection = books.publisher_of(incarnation, *routes[name])
            whose[incarnation, connection] = name, first
            confirmed = {seq - first + 1 for seq in range(first, end) if publisher.outcomes[seq] == CONFIRMED}
            for event, tags in (("published", books.published), ("confirmed", books.confirmed)):
                lost = confirmed - tags[incarnation, connection]
                if lost:
                    found.append(
                        f"incarnation {incarnation}, {name}: {len(lost)} confirmed without '{event}': "
                        f"{sorted(lost)[:5]}"
                    )
    last = rounds.incarnation()
    for queue in history.queues.values():
        logged = set()
        for message in books.delivered[last, queue.name]:
            incarnation, connection, tag = books.origin(message) or (0, "", 0)
            name, first = whose.get((incarnation, connection), ("", 0))
            logged.add((name, first + tag - 1))
        drained = {
            (each.publisher, each.sequence) for each in queue.deliveries if each.incarnation == history.incarnation
        }
        lost_there = drained - logged
        if lost_there:
            found.append(f"{queue.name}: {len(lost_there)} drained without 'delivered': {sorted(lost_there)[:5]}")
    return found


def _messages(row: dict[str, Any]) -> Iterator[Message]:
    queue_id, epoch, first, count = (row[name] for name in MESSAGE)
    for number in range(first, first + count):
        yield queue_id, epoch, number
