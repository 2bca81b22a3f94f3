"""What a check found: one finding for each damage, in words that say what it means for the messages.

What comes in: findings, with the numbers of queues; the names that the metadata have for these. What goes out: the
findings in order, as text and as values for JSON.
Rules: 1. A note is no damage: nothing is wrong with the files; nor is a newer format: of that nothing is known.
2. Findings of the same kind about neighbouring messages of one queue are one finding. 3. `{queue}` and `{messages}`
in a text are filled in at the end, when the names are known.
Not here: what is looked at (`journal.py`, `metadata.py`, `check.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

DAMAGE, NOTE, NEWER = "damage", "note", "newer"

REPAIR = "amqpd check --repair"
RESTORE = "restore a backup (amqpd restore)"
REPAIR_OR_RESTORE = f"{REPAIR}, or {RESTORE}"

LEVELS = 256
"""A priority queue's levels have the numbers behind its own."""


@dataclass(slots=True)
class Finding:
    """One damage: where it is, what it means, and the way out."""

    file: str
    """its name in the data directory"""
    kind: str
    severity: str
    text: str
    remedy: str = ""
    queue_id: int | None = None
    queue: str = ""
    """its name, if the metadata know it"""
    vhost: str = ""
    first: int | None = None
    last: int | None = None
    """the messages' numbers"""

    @property
    def line(self) -> str:
        return f"{self.file}: {self.text}" + (f"; {self.remedy}" if self.remedy else "")

    def plain(self) -> dict[str, Any]:
        """For JSON. Numbers of queues are texts: programs that keep numbers as floats would change them."""
        return {**asdict(self), "queue_id": None if self.queue_id is None else str(self.queue_id)}


@dataclass(slots=True)
class JournalQueueNames:
    """Queues by their number in the journal: (virtual host, name)."""

    queues: dict[int, tuple[str, str]] = field(default_factory=dict)
    vhosts: list[str] = field(default_factory=list)
    delayed: dict[int, str] = field(default_factory=dict)
    """the numbers of delayed messages, with their virtual host; known when the journal's identity is"""
    dropped: frozenset[int] = frozenset()
    """numbers of queues whose deletion is recorded"""
    known: bool = False
    """the metadata could be read, so a number without a name is one of an unknown queue"""

    def of(self, queue_id: int) -> tuple[str, str] | None:
        for level in range(LEVELS):
            if (found := self.queues.get(queue_id - level)) is not None:
                return found
        return None

    def covers(self, queue_id: int) -> bool:
        """A queue, a level of one, or delayed messages that the metadata know."""
        return queue_id in self.delayed or self.of(queue_id) is not None

    def name_of(self, queue_id: int) -> str:
        if (vhost := self.delayed.get(queue_id)) is not None:
            return f"the delayed messages of virtual host '{vhost}'"
        if (found := self.of(queue_id)) is not None:
            return f"queue '{found[1]}' in virtual host '{found[0]}'"
        return f"queue number {queue_id}" + (", which the metadata do not know" if self.known else "")


class Report:
    """All that a check found, in the order in which it looked."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.names = JournalQueueNames()

    def damage(
        self,
        file: str,
        kind: str,
        text: str,
        remedy: str,
        queue_id: int | None = None,
        first: int | None = None,
        last: int | None = None,
    ) -> None:
        before = self.findings[-1] if self.findings else None
        if (
            before is not None
            and before.last is not None
            and first == before.last + 1
            and (before.file, before.kind, before.text, before.queue_id) == (file, kind, text, queue_id)
        ):
            before.last = last
            return
        self.findings.append(Finding(file, kind, DAMAGE, text, remedy, queue_id, "", "", first, last))

    def note(self, file: str, kind: str, text: str, remedy: str = "", queue_id: int | None = None) -> None:
        self.findings.append(Finding(file, kind, NOTE, text, remedy, queue_id))

    def newer(self, file: str, formats: str) -> None:
        """A file that a newer amqpd wrote; `formats`: which, and what this one knows."""
        text = f"it was written by a newer amqpd ({formats}), so it is not looked at"
        self.findings.append(Finding(file, "format", NEWER, text, "run that version, and its 'amqpd check'"))

    def cut(self, file: str, what: str) -> Callable[[str], None]:
        """To be told why reading `what` ended early."""

        def ended(reason: str) -> None:
            text = f"{what} can be read in part only ({reason})"
            self.damage(file, "structure", text, REPAIR_OR_RESTORE if file.startswith("journal") else RESTORE)

        return ended

    def finish(self) -> None:
        """Fill in names and numbers."""
        for each in self.findings:
            if each.queue_id is not None:
                each.vhost, each.queue = self.names.of(each.queue_id) or (
                    self.names.delayed.get(each.queue_id, ""),
                    "",
                )
                each.text = each.text.replace("{queue}", self.names.name_of(each.queue_id))
            if each.first is not None:
                each.text = each.text.replace("{messages}", messages(each.first, each.last))

    def count(self, severity: str) -> int:
        return sum(each.severity == severity for each in self.findings)

    def plain(self) -> Mapping[str, Any]:
        counts = {"damage": self.count(DAMAGE), "notes": self.count(NOTE), "newer": self.count(NEWER)}
        return {**counts, "findings": [each.plain() for each in self.findings]}


def messages(first: int, last: int | None) -> str:
    return f"message {first}" if last in (first, None) else f"messages {first} to {last}"
