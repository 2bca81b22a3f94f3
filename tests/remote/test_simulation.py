"""Edges and leaders from seeds, and mistakes that they have to find.

In `make test`: a few seeds, and all mistakes. `AMQPD_SIMULATION_SEARCH=1` looks for the mistakes from seed 0 on.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.remote.simulation import bugs_of_edges, bugs_of_leaders
from tests.remote.simulation.bugs import NoBug
from tests.remote.simulation.law import LawBroken
from tests.remote.simulation.planted import PLANTED
from tests.remote.simulation.run import HAPPENS, Stuck, run

SEEDS = int(os.environ.get("AMQPD_SIMULATION_SEEDS", "40"))
SEEDS_SLOW = 500
FIRST = int(os.environ.get("AMQPD_SIMULATION_FIRST", "0"))
SEEDS_TO_FIND_MAX = 500
SEARCH = bool(os.environ.get("AMQPD_SIMULATION_SEARCH"))


def _passes(seeds: range, is_durable: bool = False) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            counts += run(seed, is_durable=is_durable)
        except (LawBroken, Stuck) as error:
            more = " --durable" if is_durable else ""
            error.add_note(f"seed {seed}: python -m tests.remote.simulation --first {seed} --seeds 1{more}")
            raise
    said = (f"{what}: {times:,}" for what, times in counts.most_common())
    print(f"\n{len(seeds)} seeds from {seeds.start}:", *said, sep="\n  ")
    assert [what for what in HAPPENS if not counts[what]] == []


def test_the_law_holds_and_everything_happens() -> None:
    _passes(range(FIRST, FIRST + SEEDS))


@pytest.mark.slow
def test_the_law_holds_in_many_seeds() -> None:
    _passes(range(FIRST + SEEDS, FIRST + SEEDS + SEEDS_SLOW))


def test_the_law_holds_with_queues_of_the_node() -> None:
    _passes(range(FIRST, FIRST + SEEDS), is_durable=True)


@pytest.mark.slow
def test_the_law_holds_with_queues_of_the_node_in_many_seeds() -> None:
    _passes(range(FIRST + SEEDS, FIRST + SEEDS + SEEDS_SLOW), is_durable=True)


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: f"{bug.__module__.rpartition('_')[2]}-{bug.__name__}")
def test_planted_mistake_is_found(bug: type[NoBug]) -> None:
    """The seed that found it when this was last looked at comes first."""
    seeds = range(SEEDS_TO_FIND_MAX) if SEARCH else (PLANTED[bug], *range(SEEDS_TO_FIND_MAX))
    for seed in seeds:
        try:
            run(seed, bug())
        except AssertionError as error:
            print(f"\n{bug.__name__}: seed {seed}: {error}")
            return
    pytest.fail(f"{bug.__doc__} was not found by {SEEDS_TO_FIND_MAX} seeds")


def test_no_mistake_is_forgotten() -> None:
    made = {
        each
        for module in (bugs_of_edges, bugs_of_leaders)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, NoBug) and each.__module__ == module.__name__
    }
    assert made == PLANTED.keys()


def test_seed_is_a_run() -> None:
    assert run(3) == run(3)
