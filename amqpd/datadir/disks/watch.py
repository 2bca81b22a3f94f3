"""Watches the disks of a node while it runs: what is left behind is told, repaired, and counts again.

What comes in: the disks; the store of definitions, when that is on them. What goes out: the list on a majority;
repaired disks; a line for each for `amqpd status`.
Rules: 1. A directory that is not the one that was opened, or a step that lasts too long, leaves its disk behind; a
slow one only if the others are a majority. 2. One repair at a time; one that failed is tried again, later each time,
up to a bound. 3. Nothing here ends the node.
Not here: a repair (`repair.py`), what a majority has (`group.py`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial

import structlog
import trio

from amqpd.datadir.disks.opening import OpenDisks
from amqpd.datadir.disks.pair import StoreOnDisks
from amqpd.datadir.disks.repair import NotRepaired, Repair
from amqpd.datadir.disks.roster import Unwritten
from amqpd.datadir.disks.standing import State
from amqpd.datadir.presence import Presence
from amqpd.journal.sqlite.likeness import Likeness

LOOK_S = 0.5
# A disk that does not end a step in this time is not waited for: drives give up a sector after some ten seconds.
STEP_S_MAX = 20.0
AGAIN_S_MIN, AGAIN_S_MAX = 1.0, 60.0
CATCH_UP_LOOK_S = 0.02
FILES = ("amqpd.lock", "journal.db", "journal.db-wal")

log = structlog.get_logger(component="disks")


class DisksWatch:
    """Of one node."""

    def __init__(self, disks: OpenDisks, definitions: StoreOnDisks | None) -> None:
        """`definitions`: if they are in the directories."""
        self._disks = disks
        self._group = disks.group
        self._definitions = definitions
        self._presence: dict[int, Presence] = {}
        self._failed: dict[int, tuple[float, float, str]] = {}
        """number -> when a repair is tried again, after how long then, and why the last one failed"""
        self._unwritten = ""
        self._threads = trio.CapacityLimiter(2)
        self._accepting: Callable[[int], None] = lambda number: None
        """commands are accepted in this directory, from now on or again"""

    def begin(self) -> None:
        """Everything is open."""
        for number in self._group.counting():
            self._presence[number] = Presence(self._disks.paths[number], FILES)

    async def run(self) -> None:
        """Until cancelled."""
        token, woken = trio.lowlevel.current_trio_token(), trio.Event()

        def wake() -> None:
            woken.set()

        self._group.at_change = lambda: _soon(token, wake)
        while True:
            with trio.move_on_after(LOOK_S):
                await woken.wait()
            woken = trio.Event()
            self._look()
            await self._write_list()
            for number in self._behind():
                await self._repair(number)

    async def run_control(self, run_in: Callable[..., Awaitable[None]], task_status: trio.TaskStatus[None]) -> None:
        """Accept commands in each directory that counts, until cancelled; `run_in` does, in one of them."""
        scopes: dict[int, trio.CancelScope] = {}
        begun: dict[int, trio.Event] = {}

        async def accept(number: int) -> None:
            """One after the other: the end of one removes its socket."""
            while True:
                begun[number] = trio.Event()
                with trio.CancelScope() as scopes[number]:
                    try:
                        await run_in(self._disks.paths[number])
                    except OSError as error:
                        path, reason = str(self._disks.paths[number]), error.strerror or str(error)
                        log.warning("no commands are accepted in it", path=path, reason=reason)
                await begun[number].wait()

        def again(number: int) -> None:
            begun[number].set()
            scopes[number].cancel()

        async with trio.open_nursery() as nursery:
            for number in range(len(self._disks.paths)):
                begun[number], scopes[number] = trio.Event(), trio.CancelScope()
                nursery.start_soon(accept, number)
            self._accepting = again
            task_status.started()

    def facts(self) -> list[str]:
        """A text for each directory."""
        return [self._fact(number) for number in range(len(self._disks.paths))]

    def _fact(self, number: int) -> str:
        state, member = self._group.state(number), self._group.members[number]
        said = {State.IN: "in use", State.FULL: "full", State.REPAIR: "being repaired", State.BEHIND: "left behind"}
        reason = member.reason if state in (State.REPAIR, State.BEHIND) else ""
        if state is State.BEHIND and number in self._failed:
            reason += f"; not repaired: {self._failed[number][2]}"
        return f"{member.path} {said[state]}" + f" ({reason})" * bool(reason)

    def _look(self) -> None:
        for number in self._group.counting():
            presence = self._presence.get(number)
            if presence is not None and (sentence := presence.lost()) is not None:
                self._group.leave(number, sentence.partition(";")[0], gone=True)
        now_s = time.monotonic()
        for number in self._group.counting():
            worker = self._group.members[number].worker
            began_s = None if worker is None else worker.began_s
            enough = len(self._group.counting()) > self._group.standings.majority
            if began_s is not None and now_s - began_s > STEP_S_MAX and enough:
                self._group.leave(number, f"it did not answer for {STEP_S_MAX:g} s")

    async def _write_list(self) -> None:
        try:
            await self._in_thread(partial(self._disks.roster.changes, self._group.counting))
        except Unwritten as error:
            if str(error) != self._unwritten:
                log.error("list of disks not written", reason=str(error))
            self._unwritten = str(error)
        else:
            self._unwritten = ""

    def _behind(self) -> list[int]:
        """Those whose repair is to be tried."""
        now_s = time.monotonic()
        return [
            number
            for number in range(len(self._disks.paths))
            if self._group.state(number) is State.BEHIND and self._failed.get(number, (0.0, 0.0, ""))[0] <= now_s
        ]

    async def _repair(self, number: int) -> None:
        repair = Repair(self._disks, number)
        path = str(repair.directory)
        try:
            copied = await self._stoppable(repair)
            if (of := self._definitions) is not None:
                reason = await of.store.beside(partial(of.file.add, number, repair.directory))
                if reason is not None:
                    raise NotRepaired(reason)
            await self._catch_up(repair)
            await self._in_thread(repair.join)
            if of is not None:
                await of.store.beside(of.file.prefer_first)
        except (NotRepaired, Unwritten) as error:
            self._not_repaired(number, str(error))
            return
        self._failed.pop(number, None)
        self._presence[number] = Presence(repair.directory, FILES)
        log.info("disk repaired", path=path, written=copied.written, removed=copied.removed, nbytes=copied.nbytes)
        self._accepting(number)

    async def _catch_up(self, repair: Repair) -> None:
        """Raises NotRepaired."""
        while not repair.caught_up():  # noqa: ASYNC110 - threads tell it, some hundred times a second
            await trio.sleep(CATCH_UP_LOOK_S)

    def _not_repaired(self, number: int, reason: str) -> None:
        self._group.leave(number, reason)
        _, last_s, before = self._failed.get(number, (0.0, 0.0, ""))
        again_s = min(max(2 * last_s, AGAIN_S_MIN), AGAIN_S_MAX)
        if reason != before:
            path = str(self._disks.paths[number])
            log.warning("disk not repaired", path=path, reason=reason, again_s=again_s)
        self._failed[number] = time.monotonic() + again_s, again_s, reason

    async def _stoppable(self, repair: Repair) -> Likeness:
        """The copy in its thread is told to end when this is cancelled, and waited for. Raises NotRepaired."""
        copied, failure = None, None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_at_cancellation, repair)
            try:
                with trio.CancelScope(shield=True):
                    copied = await trio.to_thread.run_sync(repair.copy, limiter=self._threads)
            except NotRepaired as error:
                failure = error
            nursery.cancel_scope.cancel()
        if copied is None:
            raise failure or NotRepaired("the node ends")
        return copied

    async def _in_thread(self, work: Callable[[], object]) -> None:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(work, limiter=self._threads)


async def _stop_at_cancellation(repair: Repair) -> None:
    try:
        await trio.sleep_forever()
    finally:
        repair.stop()


def _soon(token: trio.lowlevel.TrioToken, call: Callable[[], None]) -> None:
    try:
        token.run_sync_soon(call)
    except trio.RunFinishedError:
        return
