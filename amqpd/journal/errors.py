"""What can go wrong between the journal and its disk, beside damage (`records.JournalDamaged`).

What comes in: nothing. What goes out: exceptions whose text is one sentence for an operator.
Rules: 1. Only after `DiskFull` may the same transaction be given again: it says that nothing of it was written.
2. None is a subclass of another, so a handler for one never swallows another; except DisksLost, which is met as a
full disk is.
Not here: which exit code or alarm follows (the shell decides).
"""

from __future__ import annotations

from amqpd.errors import StorageFailure


class DiskFailure(StorageFailure):
    """The disk or the file system failed, the outcome of the call is unknown. The node stops; the disk object
    refuses every later call that writes."""


class DiskFull(Exception):
    """No space left, and the transaction was rolled back as a whole: nothing of it is on disk, and it may be
    committed again, with the same index, when there is space (`Disk.release_reserve`)."""


class DisksLost(DiskFull):
    """Too few of several disks are left: fewer than a majority can be written, or none can be read that has
    everything. What was asked for may be asked again, as after DiskFull: it is done when enough of them answer, or
    are repaired."""


class UnusableWrites(Exception):
    """The writes of a source that another node made cannot be written: they contradict themselves, or what is
    there. Nothing of the transaction was written."""

    def __init__(self, source: int, reason: str) -> None:
        super().__init__(f"source {source}: {reason}")
        self.source = source
        self.reason = reason


class NewerJournalFormat(Exception):
    """The data directory was written by a newer amqpd. Nothing was changed."""

    def __init__(self, sentence: str, formats: str) -> None:
        """`formats`: which it is, and which this one knows: a part of the sentence."""
        super().__init__(sentence)
        self.formats = formats


class NotAJournal(Exception):
    """A file stands where the journal belongs, and it is something else. Nothing was changed."""


class JournalInUse(Exception):
    """Another process has the journal open. Nothing was changed."""
