"""Mistakes of a start: what a process claims to be, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from amqpd.cluster.claims import Claim
from amqpd.cluster.records import KnownRecord
from tests.replication.simulation.bugs import Patched
from tests.replication.simulation.starting import Start

_next = Claim.next


def _draws_each_time(
    self: Claim, known: KnownRecord | None, draw: Callable[[], int], draw_nonce: Callable[[], int]
) -> Claim:
    return replace(_next(self, known, draw, draw_nonce), nonce=draw_nonce())


class NonceOfEachStart(Patched):
    """A start does not know the claim of the one before, whose put was on its way when that was killed."""

    where, name, instead = Claim, "next", _draws_each_time
    only = {"start": 1000}


def _looks_at_the_generation(self: Claim, known: KnownRecord) -> bool:
    return known.generation == self.generation


class OlderCopyGoesOn(Patched):
    """Whatever has the generation that is known has all that was acknowledged."""

    where, name, instead = Claim, "goes_on", _looks_at_the_generation
    only = {"copy": 1000, "restore": 2000, "crash": 2000}


def _puts_first(self: Start, revision: int) -> None:
    self._put(revision)
    self._process.machine.thread(self._process, self._write, (), lambda _, error: None)


class PutBeforeItIsKept(Patched):
    """What the store is told is on the disk later."""

    where, name, instead = Start, "_keep", _puts_first
    only = {"start": 1000}
