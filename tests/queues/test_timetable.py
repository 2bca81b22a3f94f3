"""Messages that leave memory with deadlines in any order: each is dead-lettered once and in time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from pamqp import commands

from amqpd.audit.kinds import DEAD_EXPIRED, EXPIRED
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import Row
from amqpd.kernel import Run
from amqpd.kernel.rows import parse_row
from amqpd.queues import timetable
from amqpd.queues.messages import Messages, RowsWanted
from amqpd.queues.timetable import AHEAD_MS
from tests.clients.wire import publish_bytes

MESSAGES = 400
SPAN_MS = 100_000


class World:
    """A backlog with deadlines in any order, a journal whose rows are a dictionary, and a list of what was
    dead-lettered."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(timetable, "BATCH_BYTES", 8000)
        monkeypatch.setattr(timetable, "ROW_BYTES", 1000)
        monkeypatch.setattr("amqpd.queues.store.SEGMENT_BYTES_MAX", 1500)
        self.chance = random.Random(seed)
        self.journal = JournalBuffer()
        self.messages = Messages(7, self.journal, True)
        self.messages.transfers(True)
        self.backlog = self.messages.backlog
        self.timetable = self.backlog.store.agenda.timetable
        self.rows: dict[tuple[int, int], Row] = {}
        self.dead_lettered: list[tuple[int, int]] = []
        """message, time"""
        self.pending: list[tuple[int, int]] = []
        self.now_ms = 0
        self.damaged_copies: Callable[[list[Row]], list[Row]] = lambda rows: rows
        """what the journal makes of rows with copies"""
        self.deadlines = [1 + self.chance.randrange(SPAN_MS) for _ in range(MESSAGES)]

    def fill(self, persistent: bool) -> None:
        for number, deadline_ms in enumerate(self.deadlines):
            properties = commands.Basic.Properties(expiration=str(deadline_ms))
            (run,) = parse_row(publish_bytes(1, "", "q", b"%06d" % number, properties))
            self.backlog.publish(run, persistent, 0, deadline_ms)
        for _ in range(4):
            self.messages.shrink(2000)
            self.commit()

    def commit(self) -> None:
        transaction = self.journal.take()
        for row in transaction.rows:
            row.join()
            self.rows[row.queue_id, row.first_seq] = row
        for gone in transaction.deletes:
            for key in [key for key in self.rows if key[0] == gone.queue_id]:
                if gone.first_seq <= key[1] <= gone.last_seq:
                    del self.rows[key]
        self.journal.stored(transaction.index)
        self.journal.committed(transaction.index)

    def expire(self) -> None:
        self.messages.expire(
            self.now_ms, self.dead_letter, lambda first, last: self.pending.append((first, last)), EXPIRED, 1 << 30
        )
        while self.pending:
            first, last = self.pending.pop(0)
            _, _, stopped = self.messages.transfer(first, last, self.dead_letter, DEAD_EXPIRED)
            if stopped <= last:
                self.pending.insert(0, (stopped, last))
                return

    def dead_letter(self, run: Run, low: int, high: int) -> tuple[int, int]:
        self.dead_lettered += [(int(run.body(i)), self.now_ms) for i in range(low, high)]
        return high - low, 0

    def read(self) -> None:
        while (request := self.messages.next_copies()) is not None:
            self.load(request, self.damaged_copies)
        while (request := self.messages.next_read(0)) is not None:
            self.load(request, lambda rows: rows)

    def load(self, request: RowsWanted, seen_as: Callable[[list[Row]], list[Row]]) -> None:
        row = self.rows.get((request.queue_id, request.first))
        request.loaded(seen_as([] if row is None else [row]))
        self.expire()

    def until(self, now_ms: int, step_ms: int = 500) -> None:
        while self.now_ms < now_ms:
            self.now_ms = min(now_ms, self.now_ms + step_ms)
            self.expire()
            self.read()
            self.messages.shrink(2000)
            self.commit()


@pytest.fixture(params=[0, 1])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(request.param, monkeypatch)


@pytest.mark.parametrize("persistent", [True, False])
def test_each_is_dead_lettered_once_and_in_time(world: World, persistent: bool) -> None:
    world.fill(persistent)
    assert world.backlog.store.memory_bytes < 6000
    assert world.rows
    world.until(SPAN_MS)
    assert sorted(number for number, _ in world.dead_lettered) == list(range(MESSAGES))
    assert all(0 <= at - world.deadlines[number] <= 500 for number, at in world.dead_lettered)
    assert world.backlog.ready == 0
    world.commit()
    world.commit()
    assert not world.rows


def test_only_what_falls_due_soon_is_in_memory(world: World) -> None:
    world.fill(False)
    for now_ms in range(SPAN_MS // 10, SPAN_MS, SPAN_MS // 10):
        world.until(now_ms)
        rows = [copies for _, _, copies in world.timetable._later if copies.segment.left]
        assert all(copies.segment.runs is None and copies.entries is None for copies in rows)
        assert all(copies.first_ms > now_ms + AHEAD_MS - 500 for copies in rows)


def test_what_was_consumed_is_not_dead_lettered(world: World) -> None:
    world.fill(False)
    taken: list[int] = []
    while len(taken) < MESSAGES // 2:
        piece = world.backlog.take(10)
        if piece is None:
            world.read()
            continue
        run, low, high, seq, _ = piece
        taken += [int(run.body(i)) for i in range(low, high)]
        world.backlog.settle(seq, seq + high - low - 1)
    world.until(SPAN_MS)
    assert sorted(taken + [number for number, _ in world.dead_lettered]) == list(range(MESSAGES))


def test_what_is_delivered_meanwhile_expires_when_it_comes_back(world: World) -> None:
    world.fill(False)
    held: list[tuple[int, int]] = []
    while len(held) < 20:
        piece = world.backlog.take(1)
        if piece is None:
            world.read()
        else:
            held.append((piece[3], piece[3]))
    world.until(SPAN_MS)
    assert len(world.dead_lettered) == MESSAGES - 20
    for first, last in held:
        world.backlog.requeue(first, last)
    world.until(SPAN_MS + 1000)
    assert sorted(number for number, _ in world.dead_lettered) == list(range(MESSAGES))


def test_a_purge_and_a_deletion_leave_nothing_behind(world: World) -> None:
    world.fill(False)
    for _ in world.messages.purging():
        pass
    world.until(2000)
    assert not world.rows
    world.fill(False)
    world.messages.drop()
    transaction = world.journal.take()
    assert set(transaction.dropped) == {7, world.timetable.queue_id}
    assert world.timetable.next_ms() is None


def test_messages_that_expire_in_their_order_are_not_copied(world: World) -> None:
    world.deadlines.sort()
    world.fill(False)
    assert {queue_id for queue_id, _ in world.rows} == {7}
    world.until(SPAN_MS)
    assert [number for number, _ in world.dead_lettered] == list(range(MESSAGES))


@pytest.mark.parametrize("damage", ["missing", "damaged", "unlike"])
def test_what_copies_cannot_say_the_messages_own_rows_do(world: World, damage: str) -> None:
    world.fill(False)
    hit = 0

    def damaged(rows: list[Row]) -> list[Row]:
        nonlocal hit
        hit += 1
        if hit % 3 != 1:
            return rows
        return {
            "missing": [],
            "damaged": [replace(row, damage="it is damaged", data=b"", deadlines=b"") for row in rows],
            "unlike": [replace(row, data=row.data[: len(row.data) // 2]) for row in rows],
        }[damage]

    world.damaged_copies = damaged
    world.until(SPAN_MS)
    assert hit > 3
    assert sorted(number for number, _ in world.dead_lettered) == list(range(MESSAGES))
    assert all(0 <= at - world.deadlines[number] <= 1000 for number, at in world.dead_lettered)
    world.commit()
    world.commit()
    assert not world.rows
