"""The scrub: every stored row of messages and every record of the journal is read and checked while the node serves.

What comes in: the node, a scan of its journal, settings, the operator's request for a pass now. What goes out: fenced
queues, lines of the log, facts for `amqpd status`.
Rules: 1. A pass goes over the journal step by step, then there is a pause. Steps are made in a thread, and when no
consumer waits for a read; but one that waits for long goes on. 2. A pass is done a little before its interval ends,
if the greatest rate allows. Its average rate is never above that, beyond one step; time that was lost is not made up
for by a burst. 3. A queue that would have to read a damaged row is fenced. What is in memory can be delivered, and is
not; what nobody waits for, because it is settled or its queue is gone, is no loss. 4. All finds of a step cost one
walk over the queues. A queue that is not made yet, of a source that begins here, is made. 5. Damage is told once in
the incarnation of the node. Nothing that is found ends anything.
Not here: reading (`journal/sqlite/scrubbing.py`), what becomes of a queue with damage (`queues/damage.py`), the check
of a stopped node (`checking/`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import trio

from amqpd.config import Settings
from amqpd.journal.sqlite.scrubbing import ScrubbedDamage, ScrubStep
from amqpd.journal.writer import BacklogReader
from amqpd.management.errors import BadArgument
from amqpd.node.node import Node

if TYPE_CHECKING:
    from amqpd.node.node import Node
    from amqpd.queues.dispatchable import Paged
    from amqpd.queues.messages import Messages

RATE_MIN = 64 << 10
"""Bytes a second: a step of 256 kB each four seconds costs nothing that can be measured, and a small journal is read
within minutes, not days."""
PASS_S_MIN = 3600.0
"""A pass begins this long after the one before it, unless the interval is shorter: a small journal need not be read
all the time."""
AIM = 0.9
"""Share of the interval in which a pass is to be done, because steps wait for consumers and the journal grows."""


def rate(left_bytes: int, left_s: float, rate_max: int) -> float:
    """Bytes a second, to read what is left in the time that is left."""
    needed = left_bytes / left_s if left_s > 0 else math.inf
    return min(max(needed, RATE_MIN), rate_max)


def pass_s(total_bytes: int, interval_s: float, rate_max: int) -> float:
    """How long a pass takes."""
    return total_bytes / rate(total_bytes, AIM * interval_s, rate_max)


def period_s(interval_s: float) -> float:
    """From the beginning of a pass to that of the next, if the first has ended by then."""
    return min(interval_s, PASS_S_MIN)


def expected_s(total_bytes: int, interval_s: float, rate_max: int) -> float:
    """Within which time a byte that changes is read again, at the latest: it may change right after it was read by
    one pass, as the first of all, and be the last one that the next pass reads."""
    one = pass_s(total_bytes, interval_s, rate_max)
    return max(one, period_s(interval_s)) + one


class ScrubPace:
    """The pace of one pass of the scrub: how much was read, and the pause before the next step."""

    def __init__(self, now_s: float, interval_s: float, rate_max: int, total_bytes: int) -> None:
        """With an interval of 0 all is read at `rate_max`."""
        self.read_bytes = 0
        self.total_bytes = total_bytes
        self._rate_max = rate_max
        self._end_s = now_s + AIM * interval_s
        self._next_s = now_s

    def step(self, nbytes: int, total_bytes: int, now_s: float) -> float:
        """This much was read, of what is `total_bytes` now: seconds to wait before the next step."""
        left = max(total_bytes - self.read_bytes, nbytes)
        self.read_bytes += nbytes
        self.total_bytes = total_bytes
        # Both from when the step was due, so that what it took itself is part of the pause.
        at_s = rate(left, self._end_s - self._next_s, self._rate_max)
        self._next_s = max(self._next_s + nbytes / at_s, now_s)
        return self._next_s - now_s

    @property
    def progress(self) -> float:
        """0 to 1, by an estimate: 1 is for a pass that is known to have ended."""
        return min(self.read_bytes / self.total_bytes, 0.99) if self.total_bytes else 0.0


FENCED, IN_MEMORY, COPIES, UNWANTED = "fenced", "in memory", "copies", "unwanted"


class DamagedRow(NamedTuple):
    """A row of the journal that is damaged on disk, of a queue or of a level of one."""

    queue_id: int
    first: int
    last: int
    reason: str


class DamageOutcome(NamedTuple):
    """The outcome of a damaged row: FENCED, UNWANTED or COPIES, and the queue that it belongs to, if any."""

    what: str
    queue: Paged | None = None


def damage_found(node: Node, rows: Sequence[DamagedRow]) -> list[DamageOutcome]:
    """What becomes of each of them."""
    levels: dict[int, tuple[Paged, Messages | None]] = {}
    wanted = {row.queue_id for row in rows}
    if wanted and node.registry.beginning:
        _make(node, wanted)
    for queue in node.paged() if wanted else ():
        for level in queue.levels() if queue.is_served else ():
            if level.queue_id in wanted:
                levels[level.queue_id] = queue, level
            agenda = level.store.agenda
            if agenda.has_timetable and agenda.timetable.queue_id in wanted:
                levels[agenda.timetable.queue_id] = queue, None
    outcomes = [_of_row(node, row, *levels.get(row.queue_id, (None, None))) for row in rows]
    fenced = [outcome.queue for outcome in outcomes if outcome.what == FENCED and outcome.queue is not None]
    for each in dict.fromkeys(fenced):
        each.look_for_damage()
        node.to_dispatch.add(each)
    return outcomes


def _make(node: Node, wanted: set[int]) -> None:
    """Of a source that begins here, the queues that these rows are of: they wait for them as others do."""
    for key, queue in list(node.remote.items()):
        if any(queue_id in wanted for queue_id in node.registry.numbers_of(queue.record)):
            node.ports.get(key)


def _of_row(node: Node, row: DamagedRow, queue: Paged | None, level: Messages | None) -> DamageOutcome:
    if queue is None or not queue.is_served:
        return DamageOutcome(UNWANTED)
    if level is None:
        return DamageOutcome(COPIES, queue)
    try:
        return DamageOutcome(_in_level(level, row), queue)
    except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
        node.quarantine(queue, error)
        return DamageOutcome(UNWANTED)


def _in_level(level: Messages, row: DamagedRow) -> str:
    outcome, seq, store = UNWANTED, row.first, level.store
    while (index := store.index_of(seq)) < len(store.segments):
        segment = store.segments[index]
        if segment.first > row.last:
            break
        begin, end = max(seq, segment.first), min(row.last, segment.last)
        if segment.live_in(begin, end):
            if segment.runs is None:
                level.paging.mark_damaged(begin, end, row.reason)
                outcome = FENCED
            elif outcome != FENCED:
                outcome = IN_MEMORY
        seq = end + 1
    return outcome


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
        run_effects: Callable[[], None],
        interval_s: float,
        rate_max: int,
        *,
        clock: Callable[[], float] = time.time,
        in_thread: InThread = trio.to_thread.run_sync,
    ) -> None:
        """`busy`: a consumer waits for a read. `run_effects` is called after anything that acted on the node.
        `rate_max` in bytes a second. An `interval_s` of 0: only when the operator asks. The threads are the default
        ones: the pump does not spin while one of them works (`Broker._alone`)."""
        self._node, self._scan, self._busy, self._run_effects = node, scan, busy, run_effects
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
        """Scrubs the journal in passes until it is cancelled."""
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
                    self._run_effects()
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
        """Mark what is damaged in the queues, and log what was not logged."""
        # Each time: what was in memory may be on disk only by now.
        rows = [each for each in found if each.messages]
        damaged = [DamagedRow(each.key[0], each.key[1], each.key[2], each.reason) for each in rows]
        outcomes = damage_found(self._node, damaged)
        for each, outcome in zip(rows, outcomes, strict=True):
            if outcome.what == UNWANTED or outcome.queue is None or not self._new(each):
                continue
            self._damaged_rows += 1
            if outcome.what != FENCED:  # what marks it has told
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
    settings: Settings, node: Node, scan: ScrubScan, reader: BacklogReader, run_effects: Callable[[], None]
) -> Scrub:
    """As the settings say; it gives way to the reader."""
    return Scrub(
        node, scan, lambda: reader.busy, run_effects, settings.scrub_interval_s, settings.scrub_bytes_per_s_max
    )


def _moment(at_s: float | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
