"""Whole clusters from seeds, and mistakes that they have to find.

In `make test`: a few seeds, and all mistakes but two. In those of `make test-heavy` everything happens that can.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.harness.slow import slow
from tests.replication.simulation import bugs_of_copies, bugs_of_disks, bugs_of_leaders, bugs_of_sets, bugs_of_starts
from tests.replication.simulation.bugs import NoBug
from tests.replication.simulation.law import LawBroken
from tests.replication.simulation.planted import PLANTED
from tests.replication.simulation.run import Stuck, run

SEEDS = int(os.environ.get("AMQPD_SIMULATION_SEEDS", "60"))
SEEDS_SLOW = 500
PARTS = 2
"""so that two workers share them"""
FIRST = int(os.environ.get("AMQPD_SIMULATION_FIRST", "0"))
DISK = os.environ.get("AMQPD_SIMULATION_DISK", "memory")
SQLITE_SEEDS = 2
SEEDS_TO_FIND_MAX = 1000
LONG = (bugs_of_sets.NumbersOfBefore, bugs_of_sets.NewSetSpeaksOfBefore)
"""mistakes whose seeds are long runs"""
SEARCH = bool(os.environ.get("AMQPD_SIMULATION_SEARCH"))

HAPPENS = (
    *("confirmed", "frame", "peer lacks entries", "caught up by state", "state that is a difference"),
    *("tail undone", "entries fetched", "state fetched", "source left out", "sent again", "source served"),
    *(
        "take-over asked for",
        "take-over won",
        "take-over lost",
        "vote refused",
        "leader lost to another one",
        "would not vote",
    ),
    *("crash", "crash of a leader", "crash with writes under way", "connection broken", "partition"),
    *("store did not answer", "swap of unknown outcome", "store put back", "converged", "membership ended"),
    *("damage noticed on the way", "damage found at restart", "disk stalled", "member late", "vote forgotten"),
    *("taker answered", "outcome unknown", "publishers wait", "dead letter to another source", "disk restored"),
    *("disk wiped", "disk admitted", "process stopped", "delivered", "vote put off", "leader cut off"),
    *("answers wait for a disk", "third of five comes back", "left out, then lost"),
    "refused, then confirmed by a resend",
    *("desired_set", "desired set fulfilled", "member learns", "member added", "member removed", "set becomes even"),
    *("source handed over", "copy dropped"),
    *("start of the version before", "message in the version before", "set has another version"),
    *("start killed", "start paused", "store stalled at a start", "claim came when its process had ended"),
)


def _passes(seeds: range, disk: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            counts += run(seed, disk=disk)
        except (LawBroken, Stuck) as error:
            error.add_note(
                f"seed {seed}: AMQPD_SIMULATION_DISK={disk} AMQPD_SIMULATION_FIRST={seed} AMQPD_SIMULATION_SEEDS=1 "
                f"pytest {__file__} -k confirmed"
            )
            raise
    said = (f"{what}: {times:,}" for what, times in counts.most_common())
    print(f"\n{len(seeds)} seeds from {seeds.start}, {disk}:", *said, sep="\n  ")
    return counts


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_confirmed_is_lost_and_all_converges(part: int) -> None:
    _passes(range(FIRST + part * SEEDS // PARTS, FIRST + (part + 1) * SEEDS // PARTS), DISK)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_everything_happens_in_many_seeds_and_nothing_confirmed_is_lost(part: int) -> None:
    """Each part is large enough for that."""
    counts = _passes(range(part * SEEDS_SLOW // PARTS, (part + 1) * SEEDS_SLOW // PARTS), DISK)
    assert [what for what in HAPPENS if not counts[what]] == []


def test_nothing_confirmed_is_lost_on_the_journal_of_sqlite() -> None:
    counts = _passes(range(FIRST, FIRST + SQLITE_SEEDS), "sqlite")
    assert counts["source served"]


@pytest.mark.parametrize("bug", [slow(bug) if bug in LONG else bug for bug in PLANTED], ids=lambda bug: bug.__name__)
def test_planted_mistake_is_found(bug: type[NoBug]) -> None:
    """The seed that found it when this was last looked at comes first."""
    seeds = range(SEEDS_TO_FIND_MAX) if SEARCH else (PLANTED[bug], *range(SEEDS_TO_FIND_MAX))
    for seed in seeds:
        try:
            run(seed, bug())
        except (AssertionError, ValueError, KeyError) as error:
            print(f"\n{bug.__name__}: seed {seed}: {error}")
            return
    pytest.fail(f"{bug.__doc__} was not found by {SEEDS_TO_FIND_MAX} seeds")


def test_no_mistake_is_forgotten() -> None:
    made = {
        each
        for module in (bugs_of_copies, bugs_of_disks, bugs_of_leaders, bugs_of_sets, bugs_of_starts)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, NoBug) and each.__module__ == module.__name__
    }
    assert made == PLANTED.keys()


def test_seed_is_a_run() -> None:
    assert run(3) == run(3)
