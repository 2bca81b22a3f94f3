"""Watches the disks of a node while it runs: what is left behind is told, repaired, and counts again.

What comes in: the disks. What goes out: the list on a majority; repaired disks; a line for each for `amqpd status`,
and a row for each that is not well.
Rules: 1. A directory that is not the one that was opened leaves its disk behind; so does one that does not answer
(`group.py`). 2. One repair at a time, beside which the others are watched; one that failed is tried again, later each
time, up to a bound. A disk that hangs is repaired when it answers. 3. Nothing here ends the node, or waits for a disk
that hangs: what is asked of a disk is asked in a thread of its own. 4. What a repair raises is why that disk is not
repaired, unless it ends the node. Only the node's end is the end of what is asked of disks: `run` may begin again. 5.
Each directory is looked at in a thread of its own, since stat(2) of one that hangs may not come back (NFS, FUSE);
what has not answered for `HANG_S` has nothing free.
Not here: a repair (`repair.py`), what a majority has (`group.py`), what is compared of a directory
(`datadir/presence.py`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import trio

from amqpd.datadir.disks.group import CLOSE_S, LOOK_S, DiskGroup
from amqpd.datadir.disks.opening import OpenDisks
from amqpd.datadir.disks.repair import NotRepaired, Repair
from amqpd.datadir.disks.roster import RosterUnwritten
from amqpd.datadir.disks.standing import DiskState, majority_of
from amqpd.datadir.presence import Presence
from amqpd.errors import leaves
from amqpd.faults import ENDS_NODE
from amqpd.journal.sqlite.likeness import Likeness
from amqpd.storage.bounded import HANG_S, BoundedCalls, Unanswered

FILES = ("amqpd.lock", "journal.db", "journal.db-wal")


class Glances:
    """Looks at the directories of one node for their presence and their free space, each in a thread of its own."""

    def __init__(self, paths: Sequence[Path], group: DiskGroup) -> None:
        self._paths = paths
        self._group = group
        self._calls = [BoundedCalls(str(path)) for path in paths]
        self._presence: dict[int, Presence] = {}
        self._free: dict[int, int] = {}

    def begin(self, number: int) -> None:
        """Everything in this directory is open. What was opened before does not matter any more."""
        self._presence.pop(number, None)

        def begin() -> None:
            self._presence[number] = Presence(self._paths[number], FILES)

        with suppress(Unanswered):
            self._calls[number].put(begin)

    def first_look(self) -> None:
        """Returns when each directory was looked at, or does not answer. Blocking."""
        for number, calls in enumerate(self._calls):
            with suppress(Unanswered):
                calls.call(lambda number=number: self._look(number))  # type: ignore[misc]

    def look(self) -> None:
        """Begins a look at each directory, and returns at once."""
        for number, calls in enumerate(self._calls):
            if not calls.busy_s():
                with suppress(Unanswered):
                    calls.put(lambda number=number: self._look(number))  # type: ignore[misc]

    def free_bytes(self) -> int:
        """What more than half of the directories have, at least."""
        free = [self._free.get(at, 0) * (calls.busy_s() < HANG_S) for at, calls in enumerate(self._calls)]
        return sorted(free, reverse=True)[majority_of(len(free)) - 1]

    def close(self) -> None:
        """Nothing is looked at any more."""
        for each in self._calls:
            each.close()

    def _look(self, number: int) -> None:
        presence = self._presence.get(number)
        if number in self._group.counting() and presence is not None and (sentence := presence.lost()) is not None:
            self._group.leave(number, sentence.partition(";")[0], gone=True)
        try:
            self._free[number] = shutil.disk_usage(self._paths[number]).free
        except OSError:
            self._free[number] = 0


AGAIN_S_MIN, AGAIN_S_MAX = 1.0, 60.0
CATCH_UP_LOOK_S = 0.02
LEFT_OUT = "left out"

log = structlog.get_logger(component="disks")


class DisksWatch:
    """Watches the disks of one running node, and repairs those that were left behind."""

    def __init__(self, disks: OpenDisks) -> None:
        self._disks = disks
        self._group = disks.group
        self._glances = Glances(disks.paths, self._group)
        self._failed: dict[int, tuple[float, float, str]] = {}
        """number -> when a repair is tried again, after how long then, and why the last one failed"""
        self._unwritten = ""
        self._writing = False
        """the list; what changes meanwhile is written after the next look"""
        self._threads = trio.CapacityLimiter(3)
        """none of them waits for a disk for longer than a bound"""
        self._repairs: dict[int, Repair] = {}
        """one that gets on, and those that do not"""
        self._accepting: Callable[[int], None] = lambda number: None
        """commands are accepted in this directory, from now on or again"""

    def begin(self) -> None:
        """Everything is open. Blocking."""
        for number in self._group.counting():
            self._glances.begin(number)
        self._glances.first_look()

    async def run(self) -> None:
        """Watches and repairs disks until it is cancelled."""
        token, woken = trio.lowlevel.current_trio_token(), trio.Event()

        def wake() -> None:
            woken.set()

        self._group.at_change = lambda: _soon(token, wake)
        async with trio.open_nursery() as nursery:
            try:
                while True:
                    with trio.move_on_after(LOOK_S):
                        await woken.wait()
                    woken = trio.Event()
                    self._glances.look()
                    self._group.look()
                    if not self._writing:
                        self._writing = True  # beside the look: it waits for each disk that hangs, up to a bound
                        nursery.start_soon(self._write_list)
                    if (number := self._behind()) is not None:
                        self._repairs[number] = Repair(self._disks, number)
                        nursery.start_soon(self._repair, number)
            except trio.Cancelled:
                # By what is around this: a repair that fails cancels the nursery.
                if not nursery.cancel_scope.cancel_called:
                    self._node_ends()
                raise
            except Exception as error:
                if any(isinstance(leaf, ENDS_NODE) for leaf in leaves(error)):
                    self._node_ends()
                raise

    def _node_ends(self) -> None:
        self._group.end_soon()
        self._glances.close()

    def free_bytes(self) -> int:
        """What more than half of the directories have free, at least."""
        return self._glances.free_bytes()

    async def run_control(self, run: Callable[..., Awaitable[None]], task_status: trio.TaskStatus[None]) -> None:
        """Accept commands in each directory that counts, until cancelled; `run` does, in one of them."""
        scopes: dict[int, trio.CancelScope] = {}
        begun: dict[int, trio.Event] = {}

        async def accept(number: int) -> None:
            """One after the other: the end of one removes its socket."""
            while True:
                begun[number] = trio.Event()
                with trio.CancelScope() as scopes[number]:
                    try:
                        await run(self._disks.paths[number])
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

    def directory_texts(self) -> list[str]:
        """A text for each directory."""
        return [self._directory_text(number) for number in range(len(self._disks.paths))]

    def rows(self) -> list[dict[str, Any]]:
        """Of each directory that is not in use: `path`, `state` (of `DiskState`, or "left out": the start before this
        one had it, and it is not named any more), `reason`, `unrepaired` (why it could not be made equal), how many
        of all are `counting`, of how many that are `listed`."""
        of_all = {"counting": len(self._group.counting()), "listed": len(self._disks.paths)}
        rows = []
        for number, path in enumerate(self._disks.paths):
            state, reason, unrepaired = self._standing(number)
            if state is not DiskState.IN:
                row = {"path": str(path), "state": state.value, "reason": reason, "unrepaired": unrepaired}
                rows.append({**row, **of_all})
        left_out = {"state": LEFT_OUT, "reason": "", "unrepaired": "", **of_all}
        return [*rows, *({"path": path, **left_out} for path in self._disks.left_out)]

    def _directory_text(self, number: int) -> str:
        state, reason, unrepaired = self._standing(number)
        if unrepaired:
            reason += f"; not repaired: {unrepaired}"
        return f"{self._group.members[number].path} {_SAID[state]}" + f" ({reason})" * bool(reason)

    def _standing(self, number: int) -> tuple[DiskState, str, str]:
        """And why it is so, and why it was not repaired."""
        state = self._group.state(number)
        if state is DiskState.BEHIND and number in self._repairs:
            state = DiskState.REPAIR
        reason = "" if state in (DiskState.IN, DiskState.FULL) else self._group.members[number].reason
        failed = state is DiskState.BEHIND and number in self._failed
        return state, reason, self._failed[number][2] if failed else ""

    async def _write_list(self) -> None:
        try:
            await self._in_thread(partial(self._disks.roster.changes, self._group.counting))
        except RosterUnwritten as error:
            if str(error) != self._unwritten:
                log.error("list of disks not written", reason=str(error))
            self._unwritten = str(error)
        else:
            self._unwritten = ""
        finally:
            self._writing = False

    def _behind(self) -> int | None:
        """The one whose repair is to be tried now."""
        if not all(repair.late for repair in self._repairs.values()):
            return None
        now_s = time.monotonic()
        for number in range(len(self._disks.paths)):
            waits = number in self._repairs or self._failed.get(number, (0.0, 0.0, ""))[0] > now_s
            if not waits and self._group.state(number) is DiskState.BEHIND and self._group.answering(number):
                return number
        return None

    async def _repair(self, number: int) -> None:
        repair = self._repairs[number]
        try:
            copied = await self._stoppable(repair)
            await self._end(number, repair)
        except (NotRepaired, RosterUnwritten, TimeoutError) as error:
            self._not_repaired(number, str(error))
        except ENDS_NODE:
            self._node_ends()
            raise
        except Exception as error:
            log.error("a repair failed as it should not", path=str(repair.directory), exc_info=error)
            self._not_repaired(number, f"{type(error).__name__}: {error}")
        else:
            self._failed.pop(number, None)
            path = str(repair.directory)
            how_much = {"written": copied.written, "removed": copied.removed, "nbytes": copied.nbytes}
            log.info("disk repaired", path=path, **how_much)
            self._accepting(number)
        finally:
            del self._repairs[number]

    async def _end(self, number: int, repair: Repair) -> None:
        """All is copied. Raises TimeoutError when it is left behind meanwhile, RosterUnwritten."""
        while not self._group.has_caught_up(number):  # noqa: ASYNC110 - threads tell it, some hundred times a second
            await trio.sleep(CATCH_UP_LOOK_S)
        self._glances.begin(number)
        await self._in_thread(repair.join)

    def _not_repaired(self, number: int, reason: str) -> None:
        self._group.leave(number, reason)
        _, last_s, before = self._failed.get(number, (0.0, 0.0, ""))
        again_s = min(max(2 * last_s, AGAIN_S_MIN), AGAIN_S_MAX)
        if reason != before:
            path = str(self._disks.paths[number])
            log.warning("disk not repaired", path=path, reason=reason, again_s=again_s)
        self._failed[number] = time.monotonic() + again_s, again_s, reason

    async def _stoppable(self, repair: Repair) -> Likeness:
        """The copy in its thread is told to end when this is cancelled, and waited for up to a bound: a disk may
        hang.
        Raises NotRepaired."""
        try:
            # Each in a limiter of its own: what hangs keeps it.
            return await trio.to_thread.run_sync(repair.copy, limiter=trio.CapacityLimiter(1), abandon_on_cancel=True)
        except trio.Cancelled:
            repair.stop()
            await self._in_thread(partial(repair.ended.wait, CLOSE_S))
            raise

    async def _in_thread(self, work: Callable[[], object]) -> None:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(work, limiter=self._threads)


def _soon(token: trio.lowlevel.TrioToken, call: Callable[[], None]) -> None:
    try:
        token.run_sync_soon(call)
    except trio.RunFinishedError:
        return


_SAID = {
    DiskState.IN: "in use",
    DiskState.FULL: "full",
    DiskState.SLOW: "slow",
    DiskState.REPAIR: "being repaired",
    DiskState.BEHIND: "left behind",
}
