"""What must hold: everything confirmed is in the one sequence of committed entries of its source.

Rules: 1. What any replica knows to be committed is the beginning of one sequence, the same for all. 2. What was
confirmed to a client is in it in the end. 3. What was refused is not. 4. Nothing is in it twice. 5. When a home of
one epoch has delivered to an exclusive consumer, none of an older epoch does. 6. A disk that counts again
has all that older epochs have committed. 7. What a disk has of what is committed is what lives of that sequence.
Not a law: that an old home confirms nothing after a newer epoch's first commit. Its own disk may be the last to say
so.
"""

from __future__ import annotations

from collections import Counter

from amqpd.replication.entry import START, LogEntry, Position
from tests.replication.simulation.disk import Kept, live_after


class LawBroken(AssertionError):
    """Confirmed messages are lost, or there are two truths."""


class Law:
    """Of one run."""

    def __init__(self) -> None:
        self.canonical: dict[int, dict[Position, LogEntry]] = {}
        """source -> what is committed, in order"""
        self._last: dict[int, Position] = {}
        self.delivered: dict[int, int] = {}
        """source -> epoch of the last home that delivered"""
        self.confirmed: dict[int, set[bytes]] = {}
        self.refused: dict[int, set[bytes]] = {}

    def committed(self, forwarder: str, source: int, entries: list[LogEntry]) -> None:
        """The forwarder has these, and knows since now that they are committed."""
        sequence = self.canonical.setdefault(source, {})
        for entry in entries:
            known = sequence.get(entry.position)
            if known is None and entry.before == self._last.get(source, START):
                sequence[entry.position] = entry
                self._last[source] = entry.position
            elif known != entry:
                there = f"{known.position}, {known.payload!r}" if known else f"nothing after {self._last[source]}"
                raise LawBroken(
                    f"source {source}: {forwarder} has committed {entry.position}, {entry.payload!r}, "
                    f"where another has {there}"
                )

    def stands(self, forwarder: str, source: int, kept: Kept) -> None:
        """The forwarder has this, all of what is committed up to its base."""
        sequence = self.canonical.setdefault(source, {})
        if kept.base != START and kept.base not in sequence:
            raise LawBroken(f"source {source}: {forwarder} has committed up to {kept.base}, which nobody else has")
        rows: dict[bytes, Position] = {}
        for entry in sequence.values():
            if entry.position <= kept.base:
                live_after(rows, entry)
        if rows != kept.rows:
            lost, dead = sorted(rows.keys() - kept.rows.keys()), sorted(kept.rows.keys() - rows.keys())
            raise LawBroken(f"source {source}: {forwarder} at {kept.base} lacks {lost[:3]}, has dead {dead[:3]}")

    def admitted(self, forwarder: str, source: int, kept: Kept, epoch: int) -> None:
        """A disk counts from now on, which has this. The home that says so is of this epoch."""
        there = {entry.position for entry in kept.tail}
        committed = [at for at in self.canonical.get(source, ()) if at[0] < epoch and at > kept.base]
        lacks = [at for at in committed if at not in there]
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
                value
                for entry in self.canonical.get(source, {}).values()
                for value in entry.payload.split()
                if not value.startswith(b"-")
            )
            lost = sorted(value for value in values if not came[value])
            twice = sorted(value for value, times in came.items() if times > 1)
            unexpected = sorted(self.refused.get(source, set()) & came.keys())
            if lost or twice or unexpected:
                raise LawBroken(f"source {source}: lost {lost}, twice {twice}, refused and there {unexpected}")
