"""The audit logs of several nodes, added up over the epochs of their sources, message by message.

What comes in: rows of the logs of all nodes of a cluster. What goes out: what became of each message; those that must
not be.
Rules: 1. Plain sets, one entry for each message: slow, and easy to believe; the job `conservation` has to say the
same. 2. What a leader leaves is known by what the next one finds: only a confirm is a promise, and only an end that
the next leader does not contradict is one. 3. No dead letters, no gaps: the logs are of a test that has none.
Not here: whether clients saw the same (`checker.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Row = dict[str, Any]
Message = tuple[int, int, int]
"""queue_id, epoch in which it came in, number"""
ENDS = ("acked", "expired", "dropped", "rejected", "dead_lettered", "purged", "moved", "released")


def rows_of(folders: Iterable[Path]) -> list[Row]:
    """Of the `audit/events` of each node."""
    paths = [path for folder in folders for path in sorted(folder.glob("date=*/hour=*/*.parquet"))]
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


@dataclass
class Account:
    confirmed: int = 0
    """messages in queues whose publisher was told"""
    lost: list[Message] = field(default_factory=list)
    """confirmed, not ended, and not there at the next leader"""
    twice: list[Message] = field(default_factory=list)
    """ended, gone, and ended again"""
    strange: list[Message] = field(default_factory=list)
    """there, or at an end, without having come in, or behind their end"""
    unknown: int = 0
    """not confirmed, and not there at the next leader"""
    undone: int = 0
    """ends after which the next leader had the message"""
    ended: int = 0
    standing: int = 0
    epochs: int = 0


class _Queue:
    """What is known of a queue up to an event."""

    def __init__(self, account: Account, promised: set[Message]) -> None:
        self._account = account
        self._promised = promised
        self._alive: set[Message] = set()
        self._ended: set[Message] = set()
        """since the last begin of an epoch"""
        self._over: set[Message] = set()

    def routed(self, message: Message) -> None:
        self._alive.add(message)

    def ends(self, message: Message) -> None:
        if message in self._alive:
            self._alive.remove(message)
            self._ended.add(message)
        elif message in self._ended or message in self._over:
            self._account.twice.append(message)
        else:
            self._account.strange.append(message)

    def begins_with(self, standing: set[Message]) -> None:
        account = self._account
        gone = self._alive - standing
        account.lost += sorted(gone & self._promised)
        account.unknown += len(gone - self._promised)
        account.undone += len(self._ended & standing)
        account.strange += sorted(standing - self._alive - self._ended)
        self._over |= self._ended - standing
        account.ended += len(self._ended - standing)
        self._alive, self._ended = set(standing), set()

    def close(self) -> None:
        self._account.standing += len(self._alive)
        self._account.ended += len(self._ended)


def account_of(rows: Iterable[Row]) -> Account:
    """Of all queues that several nodes keep."""
    account = Account()
    told: set[tuple[str, int, int]] = set()
    of_queues: dict[int, list[Row]] = {}
    epochs: set[tuple[int, int]] = set()
    for row in rows:
        if row["event"] == "confirmed":
            told.update((row["node"], row["incarnation"], row["publication"] + at) for at in range(row["count"]))
        elif row["event"] == "source_begins":
            epochs.add((row["source"], row["source_epoch"]))
        elif row["source"] and row["queue_id"]:
            of_queues.setdefault(row["queue_id"], []).append(row)
    account.epochs = len(epochs)
    for found in of_queues.values():
        found.sort(key=lambda row: (row["source_epoch"], row["number"]))
        promised = {
            message
            for row in found
            if row["event"] == "routed"
            for at, message in enumerate(_messages(row))
            if (row["node"], row["incarnation"], row["publication"] + at) in told
        }
        account.confirmed += len(promised)
        _add_up(_Queue(account, promised), found)
    return account


def _add_up(queue: _Queue, rows: list[Row]) -> None:
    standing: set[Message] = set()
    left = 0
    for row in rows:
        event = row["event"]
        if event == "standing":
            if row["reason"]:
                assert row["reason"] == "recovered", row
                standing, left = set(), int(row["detail"])
            else:
                standing.update(_messages(row))
                left -= 1
            if not left:
                queue.begins_with(standing)
            continue
        assert not left, f"an anchor is in one piece: {row}"
        for message in _messages(row):
            if event == "routed":
                queue.routed(message)
            elif event in ENDS:
                queue.ends(message)
    queue.close()


def _messages(row: Row) -> Iterator[Message]:
    for number in range(row["first"], row["first"] + row["count"]):
        yield row["queue_id"], row["epoch"], number
