"""What must hold: everything confirmed is in the one sequence of committed entries of its source.

Rules: 1. What any replica knows to be committed is the beginning of one sequence, the same for all. 2. What was
confirmed to a client is in it in the end. 3. What was refused is not. 4. Nothing is in it twice. 5. When a home of
one epoch has delivered to an exclusive consumer, none of an older epoch does. 6. A disk that counts again
has all that older epochs have committed.
Not a law: that an old home confirms nothing after a newer epoch's first commit. Its own disk may be the last to say
so.
"""

from __future__ import annotations

from collections import Counter

from amqpd.replication.entry import LogEntry, Position


class LawBroken(AssertionError):
    """Confirmed messages are lost, or there are two truths."""


class Law:
    """Of one run."""

    def __init__(self) -> None:
        self.canonical: dict[int, list[LogEntry]] = {}
        self._seen: dict[tuple[str, int], int] = {}
        """(forwarder, source) -> how many committed entries of it were looked at"""
        self.delivered: dict[int, int] = {}
        """source -> epoch of the last home that delivered"""
        self.confirmed: dict[int, set[bytes]] = {}
        self.refused: dict[int, set[bytes]] = {}

    def committed(self, forwarder: str, source: int, entries: list[LogEntry], base: Position) -> None:
        """The forwarder has these, and knows those up to `base` to be committed."""
        sequence = self.canonical.setdefault(source, [])
        at = self._seen.get((forwarder, source), 0)
        while at < len(entries) and entries[at].position <= base:
            if at == len(sequence):
                sequence.append(entries[at])
            elif sequence[at] != entries[at]:
                raise LawBroken(
                    f"source {source}: {forwarder} has committed {entries[at].position}, {entries[at].payload!r}, "
                    f"where another has {sequence[at].position}, {sequence[at].payload!r}"
                )
            at += 1
        self._seen[forwarder, source] = at

    def forget(self, forwarder: str) -> None:
        """It crashed, and knows what its disk knows."""
        for key in [key for key in self._seen if key[0] == forwarder]:
            del self._seen[key]

    def admitted(self, forwarder: str, source: int, entries: list[LogEntry], epoch: int) -> None:
        """A disk counts from now on, which has these entries. The home that says so is of this epoch."""
        there = {entry.position for entry in entries}
        lacks = [
            e.position for e in self.canonical.get(source, ()) if e.position[0] < epoch and e.position not in there
        ]
        if lacks:
            raise LawBroken(f"source {source}: the disk of {forwarder} is admitted, and lacks {lacks[:3]}")

    def deliver(self, source: int, epoch: int) -> None:
        """A home of this epoch gives a message to the only consumer that may have it."""
        before = self.delivered.get(source, 0)
        if epoch < before:
            raise LawBroken(f"source {source}: epoch {epoch} delivers after epoch {before} did")
        self.delivered[source] = epoch

    def confirm(self, source: int, value: bytes) -> None:
        self.confirmed.setdefault(source, set()).add(value)

    def refuse(self, source: int, value: bytes) -> None:
        self.refused.setdefault(source, set()).add(value)

    def end(self) -> None:
        """After everything has healed."""
        for source, values in self.confirmed.items():
            came = Counter(
                value for entry in self.canonical.get(source, ()) for value in entry.payload.split() if value
            )
            lost = sorted(value for value in values if not came[value])
            twice = sorted(value for value, times in came.items() if times > 1)
            unexpected = sorted(self.refused.get(source, set()) & came.keys())
            if lost or twice or unexpected:
                raise LawBroken(f"source {source}: lost {lost}, twice {twice}, refused and there {unexpected}")
