"""Mistakes that the law has to find, each at one place: what all of them have.

What comes in: nothing. What goes out: the hooks that a cluster calls. A mistake is a class that overrides one, or
that changes one method of the shipped modules while it is planted.
Not here: the mistakes, by where they are made (`bugs_of_leaders.py`, `bugs_of_copies.py`, `bugs_of_disks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import getattr_static
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from amqpd.journal.records import RecoveredQueue

if TYPE_CHECKING:
    from tests.replication.simulation.machine import Machine
    from tests.replication.simulation.process import Process


class NoBug:
    """As it ships."""

    seed = 0
    """that finds it"""
    nodes = members = sources = 0
    """of a cluster in which it can be found; 0: as drawn"""
    only: dict[str, int] = {}
    """what it needs: the name of a fault, and about how many ms are between two of them; nothing else goes wrong.
    Empty: as drawn"""

    refuses_what_is_unknown = False
    """clients of a leader that has ended hear that what they wait for is not there"""

    @contextmanager
    def planted(self) -> Iterator[None]:
        yield

    def drive(self, drive: Any) -> None:
        """A machine has it, and begins with it."""

    def joined(self, process: Process) -> None:
        """It is a member since now."""

    def ended(self, process: Process) -> None:
        """It is no more."""

    def commits(self, machine: Machine) -> None:
        """A transaction is on its way to the disk."""

    def begins_at(self, process: Process, found: RecoveredQueue) -> int:
        """The first number that a leader gives."""
        return found.next_seq

    def cause_of_a_dead_letter(self, cause: int) -> int:
        """Why a queue says that it lets a message go, when that goes on to another source."""
        return cause


class Patched(NoBug):
    """One attribute of the shipped modules is another."""

    where: Any = None
    name = ""
    instead: Any = None

    @contextmanager
    def planted(self) -> Iterator[None]:
        instead = getattr_static(self, "instead")
        with patch.object(self.where, self.name, getattr(instead, "__func__", instead)):
            yield
