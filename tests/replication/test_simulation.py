"""Whole clusters from seeds, and mistakes that they have to find."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.replication.simulation.bugs import PLANTED, NoBug
from tests.replication.simulation.law import LawBroken
from tests.replication.simulation.run import Stuck, run

SEEDS = int(os.environ.get("AMQPD_SIMULATION_SEEDS", "400"))
FIRST = int(os.environ.get("AMQPD_SIMULATION_FIRST", "0"))
SEEDS_TO_FIND_MAX = 1000
SEARCH = bool(os.environ.get("AMQPD_SIMULATION_SEARCH"))

HAPPENS = (
    *("confirmed", "frame", "peer lacks entries", "caught up by state", "state that is a difference"),
    *("tail undone", "entries fetched", "state fetched", "state given up", "source left out", "sent again"),
    *("take-over begun", "take-over won", "take-over lost", "seal refused", "home fenced"),
    *("crash", "crash of a home", "crash with writes under way", "connection broken", "partition"),
    *("message lost", "store did not answer", "swap of unknown outcome", "store put back", "converged"),
    *("damage noticed on the way", "damage found at restart", "disk stalled", "member late", "seal forgotten"),
    *("taker answered", "own seal put off"),
    *("disk wiped", "disk admitted", "process stopped", "delivered", "seal put off", "home cut off"),
)


def test_nothing_confirmed_is_lost_and_all_converges() -> None:
    counts: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        try:
            counts += run(seed)
        except (LawBroken, Stuck) as error:
            error.add_note(f"seed {seed}: AMQPD_SIMULATION_FIRST={seed} AMQPD_SIMULATION_SEEDS=1 pytest {__file__}")
            raise
    print(
        f"\n{SEEDS} seeds from {FIRST}:", *(f"{what}: {times:,}" for what, times in counts.most_common()), sep="\n  "
    )
    if SEEDS >= 50:
        assert [what for what in HAPPENS if not counts[what]] == []


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_planted_mistake_is_found(bug: type[NoBug]) -> None:
    """The seed that found it when this was last looked at comes first."""
    seeds = range(SEEDS_TO_FIND_MAX) if SEARCH else (*range(bug.seed, bug.seed + 3), *range(SEEDS_TO_FIND_MAX))
    for seed in seeds:
        try:
            run(seed, bug())
        except (AssertionError, ValueError) as error:
            print(f"\n{bug.__name__}: seed {seed}: {error}")
            return
    pytest.fail(f"{bug.__doc__} was not found by {SEEDS_TO_FIND_MAX} seeds")


def test_seed_is_a_run() -> None:
    assert run(3) == run(3)
