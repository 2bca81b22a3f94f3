"""The delayed messages of a virtual host: a backlog that nobody consumes, and that gives back what falls due.

What comes in: runs with a delay; the time. What goes out: the runs, when their time has come.
Rules: 1. Whatever their delivery mode, delayed messages are on disk before they are confirmed, and survive a restart:
there is no client any more that could publish them again. 2. A message leaves the store in the tick in which it
enters its queues: one transaction of the journal has both. 3. It never comes too early. 4. A damaged message holds
back nothing else: delayed messages have no order. 5. What reaches a queue that takes none now waits here, by that
queue: one message of each is tried again after some time, and when it goes the others follow. 6. Dead letters of what
full queues refused are kept up to a bound: their publishers may go on for as long as a queue is away. 7. What goes to
a queue that another node leads leaves the store when that is decided (`transit.py`), and not in one transaction.
Not here: what delays a message (`amqpd/message/delays.py`), where it goes then (`amqpd/publishing/routing.py`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial

from amqpd.audit.kinds import RELEASED
from amqpd.audit.publication import Publication
from amqpd.journal.records import RecoveredQueue
from amqpd.kernel import Run
from amqpd.message.rewriting import run_names
from amqpd.queues.backlog import Backlog
from amqpd.queues.damage import log_damage
from amqpd.queues.deadletters import is_dead_letter
from amqpd.queues.dispatchable import LOOK_WORK, Paged
from amqpd.queues.expiry import LATER
from amqpd.queues.facts import Facts
from amqpd.queues.host import DispatchingHost, Released
from amqpd.queues.messages import Messages
from amqpd.queues.states import SERVED, QueueState
from amqpd.queues.transit import Names, Transit, Transits, piece_end
from amqpd.vocabulary.records import QueueRecord

# What it takes to publish a run again, in the unit of `flow/turns.py`, without routing and copies.
RELEASE_WORK = 10

# Whether a queue is here by now that messages wait for: each is asked for this often, this many at a time, in turn.
# After a start a node has none of its replicated queues for some tens of ms, and after a take-over for some seconds.
AWAY_LOOK_MS, AWAY_LOOKS_MAX = 500, 64
# The log names one that they still wait for this often: it may be for good.
AWAY_TOLD_MS = 60_000

# Of dead letters of what was refused: more wait for a queue that is gone for good, and would fill the node's disk.
# Those that were here at the start are not counted.
DEAD_LETTERS_MAX, DEAD_LETTERS_BYTES_MAX = 10_000, 64 << 20

AWAY_REASON = "the leader of that queue is another node, or none at present, or its copies are too far behind"

Release = Callable[[str, Run, Transit | None], Released]
"""publishes the run again in the virtual host"""
Falling = tuple[int, int, str, Names | None]
"""first, last; the queue that others wait for, too; the queues that are to have them when others have them already"""


class DelayedMessages(Paged):
    """The delayed messages of one virtual host, paged and released by the node; no client can name them."""

    def __init__(self, vhost: str, number: int, host: DispatchingHost[DelayedMessages], release: Release) -> None:
        """`number`: under which the journal has them (`vocabulary/journal_numbers.py`)."""
        self.record = QueueRecord(vhost, "delayed messages", number)
        self.host = host
        self.lane = host.journal.lane_of(number)
        self.state = SERVED
        self.crash_reason = None
        self.look_work = LOOK_WORK
        self.dead_letters_under_way = 0
        self._release = release
        self.facts = Facts(host.now_ms)
        self.wake_ms = None
        self.audit_level = None
        self.recorded_share = 0
        self.messages = Messages(number, host.journal, self.record.durable)
        self.messages.transfers(True)
        self.backlog = self.messages.backlog
        self.reading = self.damage = False
        self.damage_told = 0
        self._falling: deque[Falling] = deque()
        """whose time has come, and that must be read first, or go to other nodes"""
        self._away: OrderedDict[str, deque[tuple[int, int, Names | None]]] = OrderedDict()
        """whose time has come, by the queue that they wait for; whose turn it is first"""
        self._transits = Transits()
        self._asked: set[str] = set()
        """of these queues the first one is in `_falling`"""
        self._look_ms = self._told_ms = -1 << 62
        """when to ask next, and when the log last said that messages wait"""
        self._left_over = 0
        """how often something fell due and was not released at once"""
        self._dead_letters = self._dead_letters_bytes = 0
        """dead letters of what was refused, which are here"""
        self._by_exchange: dict[str, int] = {}
        """how many there are, of those with numbers from `_known_from` on: the others were here at the start"""
        self._known_from = 0
        self._sent: dict[Transit, tuple[str, int]] = {}
        """in transit, with their exchange, and the bytes of each if they are dead letters"""
        self._far = False
        """the last one went to a queue that another node leads"""
        self._stopped_by = ""
        self._stopped = 0
        """the queue that the last release met as a remote one, and how many messages alike wait for it with that"""

    def take_over(self, level: Messages) -> None:
        """Have these messages, which are a store's, in place of none. Its books are to be looked at then."""
        assert not self.backlog.ready
        self.messages, self.backlog = level, level.backlog
        level.transfers(True)
        self._sent.clear()
        self._transits = Transits()
        self.facts.begin(level.backlog.ready)
        self._by_exchange.clear()
        self._known_from = level.store.next_seq

    def recover(self, found: RecoveredQueue) -> None:
        """Take over what the journal has."""
        messages = self.messages
        assert isinstance(messages, Messages)
        messages.recover(found)
        self.facts.begin(self.backlog.ready)

    def delete(self) -> None:
        self.enter(QueueState.DELETED)
        self.messages.drop()

    def waiting_for(self, exchange: str, alone: bool) -> int | None:
        """How many were published to this exchange; None: it is not known, as some were here at the start. `alone`:
        no other exchange is made for delayed messages, so those are counted as this one's."""
        there = self.ready_count + self.unacked_count
        if not there:
            self._by_exchange.clear()
        before = there - sum(self._by_exchange.values())
        known = self._by_exchange.get(exchange, 0)
        if before <= 0:
            return min(known, there)
        return known + before if alone else None

    def earliest_ms(self) -> int | None:
        """The first time. (`next_due_ms` is when the store wants to look, which may be some time before.)"""
        times = []
        for level in self.messages.levels():
            times.append(level.store.agenda.timetable.earliest_ms)
            segments = level.store.segments
            times += [segment.deadlines.next_ms() for segment in segments if segment.deadlines is not None]
        return min((each for each in times if each is not None), default=None)

    def has_capacity(self, run: Run) -> bool:
        """Of dead letters there are not too many."""
        if not is_dead_letter(run):
            return True
        there = self.ready_count + self.unacked_count
        if there < self._dead_letters:
            # Some have left without having been released: an operator took them away.
            self._dead_letters, self._dead_letters_bytes = there, self._dead_letters_bytes if there else 0
        return (
            self._dead_letters + run.count <= DEAD_LETTERS_MAX
            and self._dead_letters_bytes + run.nbytes <= DEAD_LETTERS_BYTES_MAX
        )

    def delay(self, run: Run, delay_ms: int, publication: Publication | None) -> bool:
        """Keep the run for so long; True: its confirm must wait for the journal."""
        self.facts.accepted += run.count
        exchange = run_names(run)[0]
        self._by_exchange[exchange] = self._by_exchange.get(exchange, 0) + run.count
        if is_dead_letter(run):
            self._dead_letters += run.count
            self._dead_letters_bytes += run.nbytes
        now_ms = self.host.now_ms
        # The clock is rounded down.
        return self.backlog.publish(run, True, now_ms, now_ms + delay_ms + 1, publication)

    def dispatch(self) -> None:
        messages, falling = self.messages, self._falling
        while self.host.work_left > 0 and (due_ms := messages.next_due_ms) is not None and due_ms <= self.host.now_ms:
            # In the order of their times, also after a pause.
            before = self._left_over
            gone, work = messages.expire(due_ms, self._fall_due, self._leaves, RELEASED, self.host.work_left)
            self.host.work_left -= work
            self.facts.expired += gone
            if messages.next_due_ms == due_ms and not gone and self._left_over == before:
                break  # something must be read first
        if self._away and self.host.now_ms >= self._look_ms:
            self._look_again()
        while falling and self._goes():
            pass
        if self.damage:
            self.look_for_damage()
        due_ms = messages.next_due_ms
        if due_ms is not None:
            self.host.wake(self, due_ms)
        if self._away:
            self.host.wake(self, self._look_ms)

    def _goes(self) -> bool:
        """The first that is falling; False when it has to be read, or there is no time for it."""
        falling = self._falling
        first, last, asked, names = falling.popleft()
        count, _, stopped = self.messages.transfer(first, last, partial(self._goes_far, names), RELEASED)
        self.facts.expired += count
        name, alike = self._stopped_by, self._stopped
        self._stopped_by = ""
        if asked and (stopped > last or name):
            self._asked.discard(asked)
            if name == asked:
                self._wait_for(name, stopped, last, names, True)
                return True
            falling.extend([(low, high, "", had) for low, high, had in self._away.pop(asked)])
        if stopped > last:
            return True
        if name:
            self._wait_for(name, stopped, stopped + alike - 1, names, False)
            if stopped + alike <= last:
                falling.appendleft((stopped + alike, last, "", names))
            return True
        falling.appendleft((stopped, last, asked, names))
        if self.host.work_left <= 0:
            self.host.again(self)
            return False
        return count > 0

    def _leaves(self, first: int, last: int) -> None:
        """It was not released at once."""
        self._left_over += 1
        name, self._stopped_by = self._stopped_by, ""
        if name:
            self._wait_for(name, first, last, None, False)
        else:
            self._falling.append((first, last, "", None))

    def _wait_for(self, name: str, first: int, last: int, names: Names | None, again: bool) -> None:
        """They wait for this queue; `again`: as they did before."""
        now_ms = self.host.now_ms
        if not self._away:
            self._look_ms = now_ms + AWAY_LOOK_MS
        waiting = self._away.setdefault(name, deque())
        if again:
            waiting.appendleft((first, last, names))
        elif waiting and waiting[-1][1] + 1 == first and waiting[-1][2] is None and names is None:
            waiting[-1] = waiting[-1][0], last, None
        else:
            waiting.append((first, last, names))
        if now_ms >= self._told_ms + AWAY_TOLD_MS:
            self._told_ms = now_ms
            self.host.log(
                "delayed_messages_wait",
                vhost=self.record.vhost,
                queue=name,
                reason=AWAY_REASON,
            )

    def _look_again(self) -> None:
        """For each queue that messages wait for, the first of them falls due once more."""
        self._look_ms = self.host.now_ms + AWAY_LOOK_MS
        for _ in range(min(len(self._away), AWAY_LOOKS_MAX)):
            name = next(iter(self._away))
            self._away.move_to_end(name)
            if name in self._asked:
                continue
            waiting = self._away[name]
            self._asked.add(name)
            first, last, names = waiting.popleft()
            self._falling.append((first, last, name, names))

    def _fall_due(self, run: Run, low: int, high: int) -> tuple[int, int]:
        if self._far:
            self._stopped_by = ""
            return 0, 0
        return self._publish(run, low, high, None)

    def _goes_far(self, names: Names | None, run: Run, low: int, high: int) -> tuple[int, int]:
        """As `_fall_due`, to queues that other nodes lead, too."""
        if self._transits.are_full():
            return 0, 0
        backlog = self.backlog
        assert isinstance(backlog, Backlog)
        done = self._publish(run, low, piece_end(run, low, high), Transit(backlog.transferring, "", names))
        self._far = done[1] == LATER
        return done

    def _publish(self, run: Run, low: int, high: int, transit: Transit | None) -> tuple[int, int]:
        if self.host.work_left <= 0:
            return 0, 0
        self.host.work_left -= RELEASE_WORK
        part = run.part(low, high)
        gone, publication, self._stopped_by = self._release(self.record.vhost, part, transit)
        self._stopped = high - low - gone
        if publication == LATER and transit is not None:
            self._transits.begins(transit)
            self._sent[transit] = run_names(part)[0], part.nbytes // gone if is_dead_letter(part) else 0
        elif gone:
            backlog = self.backlog
            assert isinstance(backlog, Backlog)
            dead_letter_bytes = part.nbytes // part.count if is_dead_letter(part) else 0
            self._released(backlog.transferring, gone, run_names(part)[0], dead_letter_bytes)
        return gone, publication

    def _released(self, first: int, gone: int, exchange: str, dead_letter_bytes: int) -> None:
        """`gone` messages leave, of which the first one has this number. `dead_letter_bytes`: of each, if they are
        dead letters."""
        if first >= self._known_from:
            self._forget(exchange, gone)
        if self._dead_letters and dead_letter_bytes:
            self._dead_letters = max(0, self._dead_letters - gone)
            self._dead_letters_bytes = max(0, self._dead_letters_bytes - dead_letter_bytes * gone)

    def arrived(self, transit: Transit) -> None:
        """It is decided what became of messages that went to queues of other nodes."""
        sent = self._sent.pop(transit, None)
        if self.state is not SERVED or sent is None:
            return
        self._transits.ends(transit)
        publication = transit.publication
        for first, last, names in reversed(transit.outcome()):
            if names == ():
                instead = publication + first - transit.first if publication else 0
                self.facts.expired += self.backlog.settle(first, last, RELEASED, instead)
                self._released(first, last - first + 1, *sent)
            else:
                self._falling.appendleft((first, last, "", names))
        self.host.again(self)

    def _forget(self, exchange: str, count: int) -> None:
        """`count` that were published to it are here no more."""
        left = self._by_exchange.get(exchange, 0) - count
        if left > 0:
            self._by_exchange[exchange] = left
        else:
            self._by_exchange.pop(exchange, None)

    # What the node asks of all that is paged

    @property
    def is_consumed(self) -> bool:
        return False

    @property
    def read_ahead(self) -> int:
        return 0

    def shrink(self, bytes_max: int) -> int:
        work = self.messages.shrink(bytes_max)
        if self.messages.shrinking:
            self.host.again(self)
        return work

    def withdrawn(self, count: int) -> None:
        self.facts.withdrawn += count

    def look_for_damage(self) -> None:
        self.damage_told = log_damage(self.host, self.record, self.messages, self.damage_told)
        damaged = self.messages.damaged
        if self.damage and not damaged:
            self.damage_told = 0
            self.host.log("queue_fence_cleared", queue=self.record.name, vhost=self.record.vhost)
        self.damage = damaged
