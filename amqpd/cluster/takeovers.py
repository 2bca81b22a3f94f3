"""Attempts of this forwarder to become the leader of sources.

What comes in: sources to be taken over; answers of the store and of other members. What goes out: questions to them;
in the end, a source to be the leader of.
Rules: 1. One attempt for each source at a time, given up when nothing has come for it for too long: from others; what
the own disk takes, which may be large or slow, does not count for that, and has a bound of its own. 2. At most
`ATTEMPTS_MAX` at once: the others wait, so that a forwarder that takes over a third of all does not make everybody
wait for everything. 3. The own replica is a member as the others are: it votes for nothing while a leader that it has
answered may still hold its leader lease. 4. Who is in the store's record and does not become the leader because of
its own disk gives the source back to the others (`GiveBacks`): it is tried until the record names somebody else, or
nobody, and the others come first as long as that is not done, and for `OTHERS_FIRST_S` after it. The disk is that of
all sources: nothing is tried before it has stored what the attempt waited for.
Not here: the steps of one (`replication/take_over.py`), which sources, and when (`succession.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from amqpd.cluster.log_events import Counters
from amqpd.cluster.shell import OwnLog, ProcessIdentity, Shell
from amqpd.journal.buffer import JournalBuffer
from amqpd.peers.entry import Vote
from amqpd.peers.messages import (
    Ballot,
    Entries,
    Fetched,
    FetchEntries,
    FetchParts,
    RequestPreVote,
    RequestVote,
    Voted,
    Would,
)
from amqpd.replication.replica import Contradiction, Replicas, StaleLeader, Write
from amqpd.replication.set_change import handed_over
from amqpd.replication.take_over import Ask as AskAll
from amqpd.replication.take_over import Fetch, FetchState, Phase, Request, SourceRecord, Step, Swap, TakeOver

ATTEMPT_S = 2.0
"""for the others, and the store, to answer"""
OWN_DISK_S = 60.0
"""For the own disk to have what it was handed, or to be read: other attempts, states for peers and queues that are
built come before. Then somebody else may try."""
REFUSED_S = 0.1
"""for the others to say that they would vote, when one has said that it would not"""
ATTEMPTS_MAX = 64
OTHERS_FIRST_S = 2.0
"""longer than all the others take to try it"""
GIVES_BACK_AGAIN_S = 2.0
"""after a swap that was not carried out, or is not known to be"""
STORE_ANSWERS_S = 40.0
"""The store may never answer. Longer than a swap takes (`swaps.SWAP_S`)."""


class GiveBacks:
    """The sources that one process gives back, because the store's record names it and it does not become their
    leader."""

    def __init__(self, shell: Shell, records: Mapping[int, SourceRecord]) -> None:
        """`records`: as the store had them last."""
        self._shell = shell
        self._records = records
        self._pending: dict[int, tuple[SourceRecord, float]] = {}
        """source -> the record that names this process, and when it is tried again"""
        self._until_s: dict[int, float] = {}
        """sources that were given back: the others come first until then"""

    def keeps_off(self, source: int) -> bool:
        """The others come first."""
        return source in self._pending or self._until_s.get(source, 0.0) > self._shell.now_s

    def begin(self, record: SourceRecord) -> None:
        """It names this process, which makes no attempt of the source before this is done."""
        self._pending[record.source] = record, self._shell.now_s
        self._look(record.source)

    def beat(self) -> None:
        """Some twenty times in a lease."""
        for source in list(self._pending):
            self._look(source)

    def _look(self, source: int) -> None:
        record, again_s = self._pending[source]
        known = self._records.get(source, record)
        if known.revision > record.revision and known.leader != record.leader:
            self._done(source)
        elif again_s <= self._shell.now_s:
            self._try(max(record, known, key=lambda each: each.revision))

    def _try(self, record: SourceRecord) -> None:
        source, now_s = record.source, self._shell.now_s
        asked = self._pending[source] = record, now_s + STORE_ANSWERS_S

        def answered(found: SourceRecord | None) -> None:
            if self._pending.get(source) is not asked:
                return  # it came too late
            if found is not None:
                self._done(source)
            else:
                self._pending[source] = record, self._shell.now_s + GIVES_BACK_AGAIN_S

        self._shell.swap(handed_over(record), answered)

    def _done(self, source: int) -> None:
        del self._pending[source]
        self._until_s[source] = self._shell.now_s + OTHERS_FIRST_S


class Attempt:
    """An attempt to take a source over that is under way, and when it is given up."""

    def __init__(self, take_over: TakeOver, now_s: float) -> None:
        self.take_over = take_over
        self.begun_s = now_s
        self.ends_s = now_s + ATTEMPT_S
        self.own_disk_s: float | None = None
        """since when the own disk is waited for, or has done something of it last"""
        self.reads = False
        """what it has won; all of it is on the own disk before"""
        self.request = 0
        """of the first question"""
        self.before = take_over.record.leader
        """the leader that it had"""


class TakeOvers:
    """All attempts of one node to take sources over that are under way."""

    def __init__(
        self,
        me: ProcessIdentity,
        shell: Shell,
        journal: JournalBuffer,
        replicas: Replicas,
        would_vote: Callable[[int, str], bool],
        won: Callable[[SourceRecord, Vote, OwnLog], str],
        ended: Callable[[int, bool], None],
        give_backs: GiveBacks,
        counters: Counters,
    ) -> None:
        """`would_vote`: the own replica, if this forwarder asks; `won`: after this leader; why it is lost all the
        same; `ended`: of a source, and whether it was won."""
        self._name, self._incarnation, self._generation = me
        self._shell = shell
        self._journal = journal
        self._replicas = replicas
        self._would_vote = would_vote
        self._won = won
        self._ended = ended
        self._give_backs = give_backs
        self._counters = counters
        self._attempts: dict[int, Attempt] = {}
        self._requests: dict[int, Attempt] = {}
        """number of a question to a member -> whose it is"""
        self._request = 0
        self._waiting: list[tuple[int, Attempt, Callable[[], None]]] = []
        """what waits for the own disk: the transaction"""
        self._leaves = False
        self._slow_index = 0
        """the highest transaction that the own disk was too slow for: until then it is for all sources"""

    def __contains__(self, source: int) -> bool:
        return source in self._attempts

    @property
    def full(self) -> bool:
        return len(self._attempts) >= ATTEMPTS_MAX

    def may_begin(self, source: int) -> bool:
        """There is no attempt of it, and the own disk is not known to be too slow for one."""
        stored = self._journal.stored_index >= self._slow_index
        return stored and source not in self._attempts and not self._give_backs.keeps_off(source)

    def begin(self, record: SourceRecord) -> None:
        """`record`: as the store has it now. There is no attempt of the source."""
        take_over = TakeOver(self._name, self._incarnation, self._replicas, record)
        attempt = self._attempts[record.source] = Attempt(take_over, self._shell.now_s)
        self._counters.take_overs_begun += 1
        self._go_on(attempt, take_over.begin())

    def leave(self) -> None:
        """This process is about to end: it becomes the leader of nothing."""
        self._leaves = True
        for attempt in list(self._attempts.values()):
            self._give_back(attempt, "this process is about to end")

    def beat(self) -> None:
        """Those that take too long are given up."""
        self._give_backs.beat()
        now_s = self._shell.now_s
        for attempt in list(self._attempts.values()):
            if attempt.own_disk_s is not None and attempt.own_disk_s + OWN_DISK_S <= now_s:
                indexes = [each[0] for each in self._waiting if each[1] is attempt]
                self._slow_index = max([self._slow_index, *indexes])
                self._give_back(attempt, "the own disk takes too long")
            elif attempt.own_disk_s is None and attempt.ends_s <= now_s:
                take_over = attempt.take_over
                late = f"too little has come in time while it is {take_over.phase.name.lower()}"
                take_over.failed("; ".join(filter(None, (late, take_over.distrusted))))
                self._go_on(attempt, None)
            elif attempt.take_over.phase in (Phase.FETCHING, Phase.WON):
                # A majority has voted for it, the own disk among it: it works, and what is fetched may be much.
                self._be_heard(attempt)

    def _give_back(self, attempt: Attempt, reason: str) -> None:
        """It is lost, by this forwarder's own doing."""
        take_over = attempt.take_over
        take_over.failed(reason)
        self._go_on(attempt, None)
        if take_over.record.leader == take_over.vote:
            self._give_backs.begin(take_over.record)

    def _be_heard(self, attempt: Attempt) -> None:
        """By the other members, in whose record this is the leader already: one that is silent is taken over from."""
        source = attempt.take_over.source
        for member in self._others(attempt):
            self._shell.send(member, RequestPreVote(attempt.request, source))

    def unusable(self, source: int, reason: str) -> None:
        """What was fetched of it cannot be written."""
        attempt = self._attempts.get(source)
        if attempt is not None:
            attempt.take_over.failed(f"what was fetched cannot be written: {reason}")
            self._go_on(attempt, None)

    def stored(self) -> None:
        """More transactions are on the own disk."""
        stored = self._journal.stored_index
        due = [each for each in self._waiting if each[0] <= stored]
        self._waiting = [each for each in self._waiting if each[0] > stored and self._is_on(each[1])]
        for _, attempt, then in due:
            if self._is_on(attempt):
                waits = attempt.reads or self._writes(attempt)
                attempt.own_disk_s = self._shell.now_s if waits else None
                attempt.ends_s = self._shell.now_s + ATTEMPT_S
                then()

    def received(self, peer: str, message: Would | Voted | Entries | Fetched) -> None:
        """A member answers."""
        attempt = self._requests.get(message.request)
        if attempt is None or not self._is_on(attempt):
            return
        take_over, writes = attempt.take_over, list[Write]()
        if isinstance(message, Would) and take_over.phase is not Phase.ASKING:
            return  # it says only that the member has heard of the attempt (`_be_heard`)
        attempt.ends_s = self._shell.now_s + ATTEMPT_S  # what is fetched may be large
        if isinstance(message, Would):
            step = take_over.would(peer, message.ballot)
            if not message.ballot.granted and take_over.phase is Phase.ASKING:
                # It may soon: better asked again than waited for those that are gone.
                attempt.ends_s = self._shell.now_s + REFUSED_S
        elif isinstance(message, Voted):
            step = take_over.voted(peer, message.vote, message.ballot)
        else:
            step = self._fetched(take_over, peer, message, writes)
        self._when_stored(attempt, writes, lambda: self._go_on(attempt, step))

    def _fetched(
        self, take_over: TakeOver, peer: str, message: Entries | Fetched, writes: list[Write]
    ) -> Step | None:
        try:
            if isinstance(message, Fetched):
                return take_over.fetched_state(peer, message.state, writes)
            return take_over.fetched(peer, message.entries, writes)
        except StaleLeader as error:
            take_over.failed(str(error))
        except Contradiction as error:
            self._counters.replicas_contradicted += 1
            self._shell.log("replica_contradicts", peer=peer, sources=[take_over.source], reason=str(error))
            take_over.failed(str(error))
        return None

    def _others(self, attempt: Attempt) -> list[str]:
        return [member for member in attempt.take_over.record.members if member != self._name]

    def _is_on(self, attempt: Attempt) -> bool:
        return self._attempts.get(attempt.take_over.source) is attempt

    def _writes(self, attempt: Attempt) -> bool:
        """Something of it is on its way to the own disk."""
        return any(each[1] is attempt for each in self._waiting)

    def _when_stored(self, attempt: Attempt, writes: list[Write], then: Callable[[], None]) -> None:
        if not writes:
            then()
        else:
            self._waits_for_disk(attempt)
            self._waiting.append((self._journal.write(writes), attempt, then))

    def _waits_for_disk(self, attempt: Attempt) -> None:
        if attempt.own_disk_s is None:
            attempt.own_disk_s = self._shell.now_s

    def _ask(self, attempt: Attempt) -> int:
        self._request += 1
        self._requests[self._request] = attempt
        attempt.request = attempt.request or self._request
        return self._request

    def _go_on(self, attempt: Attempt, step: Step | None) -> None:
        if not self._is_on(attempt):
            return
        take_over, source, others = attempt.take_over, attempt.take_over.source, self._others(attempt)
        if isinstance(step, AskAll):
            for member in others:
                self._shell.send(member, RequestPreVote(self._ask(attempt), source))
            granted = self._would_vote(source, self._name)
            self._go_on(attempt, take_over.would(self._name, self._own_ballot(attempt, granted)))
        elif isinstance(step, Swap):
            attempt.ends_s = self._shell.now_s + ATTEMPT_S
            self._shell.swap(step.record, lambda record: self._swapped(attempt, record))
        elif isinstance(step, Request):
            for member in others:
                self._shell.send(member, RequestVote(self._ask(attempt), source, step.vote))
        elif isinstance(step, Fetch):
            self._shell.send(step.member, FetchEntries(self._ask(attempt), source, step.after))
        elif isinstance(step, FetchState):
            self._shell.send(step.member, FetchParts(self._ask(attempt), source, step.after))
        if take_over.phase is Phase.LOST:
            self._end(attempt)
            self._tell_lost(attempt, take_over.reason)
            self._ended(source, False)
        elif take_over.phase is Phase.WON and not (attempt.reads or self._writes(attempt)):
            attempt.reads = True
            self._waits_for_disk(attempt)
            self._shell.read_own(source, lambda own: self._win(attempt, own))

    def _swapped(self, attempt: Attempt, record: SourceRecord | None) -> None:
        if not self._is_on(attempt):
            if self._leaves and record is not None:
                self._give_backs.begin(record)  # it was asked for before that
            return
        take_over, writes = attempt.take_over, list[Write]()
        if record is not None and not self._would_vote(take_over.source, self._name):
            # The leader was heard again while the store was asked, and by that its leader lease goes on.
            take_over.failed(f"{self._replicas[take_over.source].vote} was answered meanwhile")
            self._go_on(attempt, None)
            return
        step = take_over.swapped(record, writes)
        ballot = self._own_ballot(attempt, step is not None)
        vote = take_over.vote
        self._when_stored(attempt, writes, lambda: self._go_on(attempt, take_over.voted(self._name, vote, ballot)))
        self._go_on(attempt, step)

    def _own_ballot(self, attempt: Attempt, granted: bool) -> Ballot:
        replica = self._replicas[attempt.take_over.source]
        return Ballot(granted, replica.vote, replica.log.last, self._generation, replica.log.base)

    def _win(self, attempt: Attempt, own: OwnLog) -> None:
        for each in self._attempts.values():
            if each.reads:
                each.own_disk_s = self._shell.now_s  # the disk works, and reads for one after the other
        if self._is_on(attempt) and attempt.take_over.phase is Phase.WON:
            self._end(attempt)
            reason = self._won(attempt.take_over.record, attempt.before, own)
            if reason:
                self._tell_lost(attempt, reason)
            else:
                self._counters.take_overs += 1
                self._tell("source_taken_over", attempt, to=self._name)
            self._ended(attempt.take_over.source, True)

    def _tell_lost(self, attempt: Attempt, reason: str) -> None:
        self._counters.take_overs_lost += 1
        self._tell("take_over_lost", attempt, reason=reason)

    def _tell(self, event: str, attempt: Attempt, **fields: str) -> None:
        take_over, lasted_s = attempt.take_over, self._shell.now_s - attempt.begun_s
        named = {
            "source": take_over.source,
            "epoch": take_over.vote.epoch,
            "from": attempt.before.forwarder,
            **fields,
        }
        self._shell.log(event, **named, duration_ms=round(lasted_s * 1000))

    def _end(self, attempt: Attempt) -> None:
        del self._attempts[attempt.take_over.source]
        self._requests = {number: each for number, each in self._requests.items() if each is not attempt}
