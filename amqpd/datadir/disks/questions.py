"""What is read of several disks: each is asked in a thread of its own, and another one when the first is late.

What comes in: questions. What goes out: the first answer of a disk that has everything.
Rules: 1. A question only reads: it may be asked of several disks, and all answers but the first are dropped. 2. One
that fails is left behind, unless no other counts: then what it raises is raised. 3. While no disk has everything
(those that had failed before the others were as far) it is DisksLost, and the question may be asked again. 4. A disk
that still reads what another one, asked later, has answered by now is slow; one that is late is asked last.
Not here: what is asked (`mirror.py`), which disks have everything (`group.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from amqpd.datadir.disks.group import DiskGroup
from amqpd.datadir.disks.one_disk import OneDisk
from amqpd.datadir.disks.standing import DiskState
from amqpd.errors import StorageFailure
from amqpd.journal.errors import DisksLost
from amqpd.storage.bounded import HANG_S, LOOK_S, BoundedCall, Unanswered

# A megabyte of rows takes milliseconds; a disk with a hiccup gets this long before another one is asked, too.
ROWS_S = 1.0

T = TypeVar("T")
Question = Callable[[OneDisk], T]


class DiskQuestions:
    """Asks questions of the disks of one node, another disk when the first is late."""

    def __init__(self, group: DiskGroup) -> None:
        self._group = group

    def ask(self, question: Question[T], patience_s: float = HANG_S) -> tuple[int, T]:
        """The number of the disk that answered, and its answer. `patience_s`: after which another one is asked.
        Raises DisksLost, and what the question raises."""
        asked: dict[int, BoundedCall[T]] = {}
        before: set[int] = set()
        next_s = 0.0
        while True:
            for number, call in list(asked.items()):
                if not call.ended:
                    continue
                del asked[number]
                if (answer := self._answer(number, call)) is not None:
                    self._drop(asked)
                    return number, answer[0]
            now_s = time.monotonic()
            if not asked or now_s >= next_s:
                number_next = self._next(before)
                if number_next is not None:
                    before.add(number_next)
                    if (put := self._put(number_next, question)) is not None:
                        asked[number_next] = put
                    next_s = now_s + patience_s
                    continue
                if not asked:
                    raise self._group.none_has_everything()
            if self._group.ending:
                self._drop(asked)
                raise DisksLost("the node ends")
            with self._group.answered:
                if not any(call.ended for call in asked.values()):
                    self._group.answered.wait(LOOK_S)

    def ask_one(self, number: int, question: Question[T]) -> tuple[T] | None:
        """None: the disk failed or does not answer, and others count. Raises DisksLost, and what the question
        raises."""
        call = self._put(number, question)
        reader = self._group.members[number].reader
        if call is None or reader is None:
            return None

        def gives_up(waited_s: float) -> bool:
            if self._group.ending or self._group.state(number) is DiskState.BEHIND:
                return True
            return waited_s >= HANG_S and self._group.others_count(number)

        try:
            return (reader.wait(call, gives_up),)
        except Unanswered:
            self._drop({number: call})
            if self._group.ending:
                raise DisksLost("the node ends") from None
            return None
        except StorageFailure as error:
            self._fails(number, error)
            return None

    def _next(self, before: set[int]) -> int | None:
        """Which disk is asked now."""
        numbers = [number for number in self._group.reading() if number not in before]
        return min(numbers, key=lambda number: (self._late(number), numbers.index(number)), default=None)

    def _late(self, number: int) -> bool:
        reader = self._group.members[number].reader
        if reader is None or reader.busy_s() > ROWS_S:
            return True
        return self._group.state(number) is DiskState.SLOW

    def _put(self, number: int, question: Question[T]) -> BoundedCall[T] | None:
        member = self._group.members[number]
        with self._group.changed:
            disk, reader = member.disk, member.reader
        if disk is None or reader is None:
            return None
        try:
            return reader.put(lambda: question(disk))
        except Unanswered:
            return None

    def _answer(self, number: int, call: BoundedCall[T]) -> tuple[T] | None:
        try:
            return (call.result(),)
        except Unanswered:
            return None
        except StorageFailure as error:
            self._fails(number, error)
            return None

    def _fails(self, number: int, error: StorageFailure) -> None:
        """Raises it when no other disk counts."""
        if not self._group.others_count(number):
            raise error
        self._group.leave(number, str(error), damaged=True)

    def _drop(self, asked: dict[int, BoundedCall[T]]) -> None:
        """Others have answered what these were asked before, or nobody waits for it any more."""
        for number, call in asked.items():
            member = self._group.members[number]
            if member.reader is not None and member.worker is not None:
                member.reader.drop(call)
                if member.reader.under_way is call:
                    member.worker.answered_elsewhere = call
