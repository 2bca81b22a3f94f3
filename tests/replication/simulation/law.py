"""What must hold: everything confirmed is in the one sequence of committed entries of its source.

Rules: 1. What any replica knows to be committed is the beginning of one sequence, the same for all. 2. What was
confirmed to a client is in it in the end, unless a consumer had it. 3. What was refused is not, before or after: its
client sends the message again, and would have it twice, once against the word of a leader. 4. Nothing is in it
twice, and no number is given twice. 5. Only what somebody settled is settled in it; what is settled in it does not
rise again on any disk, and what is not is there on each that counts. 6. A dead letter's settle is not in it before
the dead letter is in the sequence of its target. 7. When a leader of one epoch has delivered to an exclusive
consumer, none of an older epoch does. 8. A disk that counts again has all that older epochs have committed.
9. What is committed is undone nowhere. 10. A disk that went on is never counted as another one, however its
processes ended; what is in its place after that, an older copy or an empty one, never as the same.
Not a law: that an old leader confirms nothing after a newer epoch's first commit. Its own disk may be the last to say
so.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Protocol

from amqpd.cluster.records import KnownRecord
from amqpd.journal.records import Recovered, RecoveredQueue, Row
from amqpd.journal.sqlite.sources import SourceHead
from amqpd.peers.entry import START, LogEntry, Position
from tests.replication.simulation.contents import Content, values_of


class LawBroken(AssertionError):
    """Confirmed messages are lost, or there are two truths."""


class JudgedDisk(Protocol):
    """What a disk says of itself."""

    def head(self, source: int) -> SourceHead: ...
    def log_entries(self, source: int, after: Position, bytes_max: int) -> list[LogEntry]: ...
    def recovered_of(self, sources: list[int]) -> Recovered: ...
    def content(self, payload: bytes) -> Content: ...
    def read(self, queue_id: int, first_seq: int, last_seq: int, bytes_max: int) -> list[Row]: ...


def live_of(found: RecoveredQueue | None) -> set[int]:
    """Numbers of messages."""
    if found is None:
        return set()
    live = {seq for row in found.rows for seq in range(row.first_seq, row.last_seq + 1)}
    for row in found.rows:
        for first, last in row.settled:
            live -= set(range(first, last + 1))
    return live


class Sequence:
    """Of one source: what is committed, in order."""

    def __init__(self) -> None:
        self.entries: dict[Position, LogEntry] = {}
        self.contents: list[tuple[Position, Content]] = []
        self.last: Position = START
        self.values: dict[bytes, int] = {}
        """value -> number"""
        self.numbers: set[int] = set()
        self.dead: dict[int, Position] = {}
        """number -> the entry that settled it"""

    def live_at(self, base: Position) -> set[int]:
        live = set[int]()
        for position, content in self.contents:
            if position > base:
                break
            live.update(seq for seq, _ in content.rows)
            live.difference_update(content.numbers())
        return live


class Law:
    """Of one run."""

    def __init__(self) -> None:
        self.sequences: dict[int, Sequence] = defaultdict(Sequence)
        self.disks: dict[str, tuple[int, int]] = {}
        """node -> the number of its disk and the generation, as the store had them last"""
        self.delivered: dict[int, int] = {}
        """source -> epoch of the last leader that delivered"""
        self.confirmed: dict[int, set[bytes]] = defaultdict(set)
        self.refused: set[bytes] = set()
        self.sent_again: dict[bytes, bytes] = {}
        """publish -> the one before it of the same message, which was refused"""
        self.given: dict[tuple[int, int], bytes] = {}
        """source and number -> value"""
        self.consumed: set[bytes] = set()
        """values that a consumer has settled, whatever became of that"""
        self._settled: set[tuple[int, int]] = set()
        """source and number that somebody settled"""
        self._dead_letters: dict[tuple[int, int, int], tuple[int, bytes]] = {}
        """source, number and epoch of the leader that let it go -> where to, and the dead letter"""
        self._became: dict[bytes, list[tuple[int, bytes]]] = defaultdict(list)
        """value -> its dead letters: another one by each leader that let it go"""

    # What clients do

    def claimed(self, known: KnownRecord, disk: int) -> None:
        """The store knows this of a node since now. `disk`: the number of the disk that its process began with.
        Raises LawBroken."""
        before, generation = self.disks.get(known.name), known.generation
        if before is not None and (disk == before[0]) != (generation == before[1]):
            same = "disk that went on counts as another one"
            other = "disk that lacks something counts as the one that was there"
            raise LawBroken(
                f"a {same if disk == before[0] else other}: {known.name}, generation {before[1]}, then {generation}"
            )
        self.disks[known.name] = disk, generation

    def gives(self, source: int, seq: int, value: bytes) -> None:
        """A leader has numbered a message."""
        if (source, seq) in self.given:
            raise LawBroken(f"source {source}: number {seq} of {self.given[source, seq]!r} is given to {value!r}")
        self.given[source, seq] = value

    def settles(self, source: int, seq: int, value: bytes) -> None:
        """A consumer does."""
        self.consumed.add(value)
        self._settled.add((source, seq))

    def goes_on(self, source: int, seq: int, epoch: int, target: int, dead_letter: bytes) -> None:
        """The leader of this epoch lets it go as a dead letter."""
        self._settled.add((source, seq))
        self._dead_letters[source, seq, epoch] = target, dead_letter
        self._became[self.given[source, seq]].append((target, dead_letter))

    def confirm(self, source: int, value: bytes) -> None:
        if value in self.refused:
            raise LawBroken(f"source {source}: {value!r} was refused, and is confirmed")
        self.confirmed[source].add(value)

    def refuse(self, source: int, value: bytes) -> None:
        """Its client may send the message again, as another publish."""
        if value in self.sequences[source].values:
            raise LawBroken(f"source {source}: {value!r} is there, and is refused")
        self.refused.add(value)

    def deliver(self, source: int, epoch: int) -> None:
        """A leader of this epoch gives a message to the only consumer that may have it."""
        before = self.delivered.get(source, 0)
        if epoch < before:
            raise LawBroken(f"source {source}: epoch {epoch} delivers after epoch {before} did")
        self.delivered[source] = epoch

    # What forwarders know

    def committed(self, forwarder: str, entries: list[tuple[LogEntry, Content]]) -> None:
        """The forwarder has these, and knows since now that they are committed."""
        for entry, content in entries:
            sequence = self.sequences[entry.source]
            known = sequence.entries.get(entry.position)
            if known is None and entry.before == sequence.last:
                self._joins(sequence, entry, content)
            elif known != entry:
                there = f"{known.position}, {known.payload!r}" if known else f"nothing after {sequence.last}"
                raise LawBroken(
                    f"source {entry.source}: {forwarder} has committed {entry.position}, {entry.payload!r}, "
                    f"where another has {there}"
                )

    def _joins(self, sequence: Sequence, entry: LogEntry, content: Content) -> None:
        source, position = entry.source, entry.position
        sequence.entries[position] = entry
        sequence.contents.append((position, content))
        sequence.last = position
        for seq, value in content.rows:
            if seq in sequence.numbers or value in sequence.values:
                raise LawBroken(f"source {source}: {value!r}, number {seq}, is there twice")
            if value in self.refused:
                raise LawBroken(f"source {source}: {value!r} was refused, and is there")
            sequence.numbers.add(seq)
            sequence.values[value] = seq
        for seq in content.numbers():
            if seq in sequence.dead:
                continue
            if (source, seq) not in self._settled or seq not in sequence.numbers:
                raise LawBroken(f"source {source}: {position} settles {seq}, which nobody settled")
            sequence.dead[seq] = position
            dead_letter = self._dead_letters.get((source, seq, position[0]))
            if dead_letter is not None and not self._is_safe(*dead_letter):
                raise LawBroken(
                    f"source {source}: {seq} is settled, and its dead letter {dead_letter[1]!r} is nowhere"
                )

    def undone(self, forwarder: str, entry: LogEntry) -> None:
        """The forwarder undoes this."""
        if self.sequences[entry.source].entries.get(entry.position) == entry:
            raise LawBroken(f"source {entry.source}: {forwarder} undoes {entry.position}, which is committed")

    def stands(self, forwarder: str, source: int, disk: JudgedDisk) -> None:
        """The forwarder has this."""
        sequence, base = self.sequences[source], disk.head(source).committed
        if base != START and base not in sequence.entries:
            raise LawBroken(f"source {source}: {forwarder} has committed up to {base}, which nobody else has")
        expected = sequence.live_at(base)
        for entry in disk.log_entries(source, base, 1 << 62):
            content = disk.content(entry.payload)
            expected.update(seq for seq, _ in content.rows)
            expected.difference_update(content.numbers())
        live = live_of(disk.recovered_of([source]).queues.get(source))
        # What died behind the base may have left the disk that the state came from.
        vanished = sorted(seq for seq in expected - live if sequence.dead.get(seq, START) <= base)
        if vanished or live - expected:
            risen = sorted(live - expected)
            raise LawBroken(f"source {source}: {forwarder} at {base} lacks {vanished[:3]}, has dead {risen[:3]}")

    def admitted(self, forwarder: str, source: int, disk: JudgedDisk, epoch: int) -> None:
        """A disk counts from now on, which has this. The leader that says so is of this epoch."""
        base = disk.head(source).committed
        there = {entry.position for entry in disk.log_entries(source, base, 1 << 62)}
        committed = [at for at in self.sequences[source].entries if at[0] < epoch and at > base]
        lacks = [at for at in committed if at not in there]
        if lacks:
            raise LawBroken(f"source {source}: the disk of {forwarder} is admitted, and lacks {lacks[:3]}")

    def reads(self, forwarder: str, source: int, disk: JudgedDisk, values: dict[int, bytes]) -> None:
        """Messages that are there have these values."""
        for seq, value in values.items():
            rows = disk.read(source, seq, seq, 1)
            found = dict(zip(range(rows[0].first_seq, rows[0].last_seq + 1), values_of(rows[0]), strict=True))
            if found.get(seq) != value:
                raise LawBroken(f"source {source}: {forwarder} has {found.get(seq)!r} in the place of {value!r}")

    def end(self) -> None:
        """After everything has healed."""
        for source, values in self.confirmed.items():
            lost = sorted(value for value in values if not self._is_safe(source, value))
            if lost:
                raise LawBroken(f"source {source}: lost {lost[:5]}")

    def _is_safe(self, source: int, value: bytes) -> bool:
        """It is there, or a consumer had it; or that is so of what it became before it was written."""
        return (
            value in self.sequences[source].values
            or value in self.consumed
            or any(self._is_safe(*dead_letter) for dead_letter in self._became[value])
        )
