"""The task that scrubs: a pass over the journal, step by step, then a pause, and again.

What comes in: the node, a scan of its journal, settings, the operator's request for a pass now. What goes out: fenced
queues, lines of the log, facts.
Rules: 1. Steps are made in a thread, and when no consumer waits for a read; but one that waits for long goes on. 2.
Damage is told once in the incarnation of the node. 3. Nothing that is found ends anything.
Not here: reading (`journal/sqlite/scrubbing.py`), rates (`pace.py`), what a damaged row does (`found.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import trio

from amqpd.config import Settings
from amqpd.journal.sqlite.scrubbing import ScrubbedDamage, ScrubStep
from amqpd.journal.writer import BacklogReader
from amqpd.management.errors import BadArgument
from amqpd.node.node import Node
from amqpd.scrub.found import COPIES, FENCED, UNWANTED, DamagedRow, damage_found
from amqpd.scrub.pace import ScrubPace, expected_s, period_s

YIELD_S, YIELDS_MAX = 0.02, 50
"""A step waits this long, and looks again this often, while a consumer waits for a read: a second at most, or a
backlog that is always read would never be scrubbed."""
TOLD_MAX = 1000
"""At most this number of damages is remembered as told, and told."""
SHOWN_MAX = 10

RECORDS_REMEDY = (
    "the node goes on with what it has in memory, and its next start may be refused: back up now (amqpd backup); "
    "'amqpd check --repair' of the stopped node says what can be repaired"
)
IN_MEMORY_REMEDY = (
    "the messages are in memory and can be delivered until they leave it, or the node ends: consume them, or move "
    "them to another queue now (amqpd message move)"
)
COPIES_REMEDY = (
    "nothing is lost: these are copies sorted by time, and the broker reads the messages themselves instead"
)

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class ScrubScan(Protocol):
    """A scan that the scrub goes through step by step: of one disk (`journal.sqlite.scrubbing.Scan`) or of several
    (`datadir.disks.scan.DisksScan`)."""

    def begin(self) -> int: ...
    def step(self) -> ScrubStep: ...
    def close(self) -> None: ...


class Scrub:
    """The task that scrubs the journal in passes: `run` must be running; `asked` is for the control server."""

    def __init__(
        self,
        node: Node,
        scan: ScrubScan,
        busy: Callable[[], bool],
        settle: Callable[[], None],
        interval_s: float,
        rate_max: int,
        *,
        clock: Callable[[], float] = time.time,
        in_thread: InThread = trio.to_thread.run_sync,
    ) -> None:
        """`busy`: a consumer waits for a read. `settle` is called after anything that acted on the node. `rate_max`
        in bytes a second. An `interval_s` of 0: only when the operator asks. The threads are the default ones: the
        pump does not spin while one of them works (`Broker._alone`)."""
        self._node, self._scan, self._busy, self._settle = node, scan, busy, settle
        self._interval_s, self._rate_max = interval_s, rate_max
        self._clock, self._in_thread = clock, in_thread
        self._request = trio.Event()
        self._pace: ScrubPace | None = None
        self._pass = self._rows = self._damaged_rows = 0
        self._total_bytes = 0
        self._read_bytes = 0
        self._started_s: float | None = None
        self._finished_s: float | None = None
        self._told: set[tuple[Any, ...]] = set()
        self._shown: list[str] = []

    async def run(self) -> None:
        """Until cancelled."""
        wait_s = 0.0 if self._interval_s else math.inf
        try:
            while True:
                with trio.move_on_after(wait_s):
                    await self._request.wait()
                full = self._request.is_set()
                self._request = trio.Event()
                begun_s = trio.current_time()
                wait_s = 0.0
                if await self._one_pass(full):
                    wait_s = max(begun_s + period_s(self._interval_s) - trio.current_time(), 0.0)
                    wait_s = wait_s if self._interval_s else math.inf
        finally:
            self._scan.close()

    async def asked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The command `scrub`: with `now`, begin a pass at the greatest rate, in place of one that is under way."""
        now = arguments.get("now", False)
        if not isinstance(now, bool):
            raise BadArgument("now must be true or false")
        if now:
            self._request.set()
        return self.facts()

    def facts(self) -> dict[str, Any]:
        """For `amqpd status`. `expected_s`: within which time damage is found at the latest; None while it is off."""
        pace, off = self._pace, not self._interval_s
        return {
            "pass": self._pass,
            "started": _moment(self._started_s),
            "progress": round(pace.progress, 4) if pace is not None else float(self._finished_s is not None),
            "bytes": self._read_bytes,
            "rows": self._rows,
            "last_pass_finished": _moment(self._finished_s),
            "damaged_rows_found": self._damaged_rows,
            "damaged_records_found": len(self._told) - self._damaged_rows,
            "damage": list(self._shown),
            "expected_s": None if off else round(expected_s(self._total_bytes, self._interval_s, self._rate_max), 1),
        }

    async def _one_pass(self, full: bool) -> bool:
        """`full`: at the greatest rate. False when the operator wants another one at once."""
        self._total_bytes = await self._in_thread(self._scan.begin)
        interval_s = 0.0 if full else self._interval_s
        self._pace = pace = ScrubPace(trio.current_time(), interval_s, self._rate_max, self._total_bytes)
        self._pass += 1
        self._started_s = self._clock()
        self._rows = self._read_bytes = 0
        try:
            while True:
                await self._give_way()
                step: ScrubStep = await self._in_thread(self._scan.step)
                self._rows += step.rows
                self._read_bytes += step.nbytes
                self._total_bytes = step.total_bytes
                if step.found:
                    self._tell(step.found)
                    self._settle()
                if step.done:
                    self._finished_s = self._clock()
                    self._pace = None
                with trio.move_on_after(pace.step(step.nbytes, step.total_bytes, trio.current_time())):
                    await self._request.wait()
                    return False
                if step.done:
                    return True
        finally:
            self._pace = None

    async def _give_way(self) -> None:
        for _ in range(YIELDS_MAX):
            if not self._busy():
                return
            await trio.sleep(YIELD_S)

    def _tell(self, found: list[ScrubbedDamage]) -> None:
        """Fence the queues; and say what was not said."""
        # Each time: what was in memory may be on disk only by now.
        rows = [each for each in found if each.messages]
        damaged = [DamagedRow(each.key[0], each.key[1], each.key[2], each.reason) for each in rows]
        outcomes = damage_found(self._node, damaged)
        for each, outcome in zip(rows, outcomes, strict=True):
            if outcome.what == UNWANTED or outcome.queue is None or not self._new(each):
                continue
            self._damaged_rows += 1
            if outcome.what != FENCED:  # the fence has told
                record, (_, first, last) = outcome.queue.record, each.key
                where = {"queue": record.name, "vhost": record.vhost, "first": first, "last": last}
                self._log(each, COPIES_REMEDY if outcome.what == COPIES else IN_MEMORY_REMEDY, where)
        for each in found:
            if not each.messages and self._new(each):
                self._log(each, RECORDS_REMEDY, {})

    def _new(self, found: ScrubbedDamage) -> bool:
        """It was not told; it is now."""
        known = (found.table, *found.key, found.messages)
        if known in self._told or len(self._told) >= TOLD_MAX:
            return False
        self._told.add(known)
        if len(self._shown) < SHOWN_MAX:
            self._shown.append(found.reason)
        return True

    def _log(self, found: ScrubbedDamage, remedy: str, where: dict[str, object]) -> None:
        self._node.log("journal_damaged", table=found.table, **where, reason=found.reason, remedy=remedy)


def scrub_of(
    settings: Settings, node: Node, scan: ScrubScan, reader: BacklogReader, settle: Callable[[], None]
) -> Scrub:
    """As the settings say; it gives way to the reader."""
    return Scrub(node, scan, lambda: reader.busy, settle, settings.scrub_interval_s, settings.scrub_bytes_per_s_max)


def _moment(at_s: float | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
