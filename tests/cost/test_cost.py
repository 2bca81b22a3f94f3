"""What a message costs does not grow unseen (issue 4, point 5): counts, no times, with bounds in `bounds.toml`.

A machine's load changes nothing here. `python -m tests.cost.measure` prints the present figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cost.bounds import bounds_of, build, excesses, python, table
from tests.cost.counting import count, waiting
from tests.cost.instructions import SECONDS_MAX, instructions, missing
from tests.cost.loads import KINDS, WAITING
from tests.harness.slow import slow_but

# One of each kind: `make test` runs these, and `make test-heavy` the others.
QUICK = ["stream", "durable-confirm", "closed-1", "mixed", "fanout-10", "many-queues"]


def excesses_of(load: str, measured: Mapping[str, float]) -> list[str]:
    return excesses(load, measured, bounds_of(load), python() == table()["interpreter"])


def check(found: list[str]) -> None:
    if found:
        pytest.fail("a message costs more than it did:\n" + "\n".join(found), pytrace=False)


@pytest.fixture(autouse=True, scope="module")
def _bounded() -> None:
    if build() not in table():
        pytest.skip(f"the build '{build()}' is not bounded yet: python -m tests.cost.measure prints its figures")


@pytest.mark.parametrize("load", slow_but(QUICK, [kind.name for kind in KINDS]))
def test_a_message_takes_no_more_calls_than_it_did(load: str) -> None:
    check(excesses_of(load, count(load)))


@pytest.mark.parametrize("load", slow_but(["stream"], WAITING))
def test_a_message_that_waits_keeps_no_more_memory_than_it_did(load: str) -> None:
    check(excesses_of(load, waiting(load)))


@pytest.mark.skipif(bool(missing()), reason=missing() or "valgrind is there")
@pytest.mark.skipif(
    python() != table()["interpreter"], reason=f"instructions are bounded for Python {table()['interpreter']}"
)
@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX)
def test_a_message_takes_no_more_instructions_than_it_did(tmp_path: Path) -> None:
    loads = [kind.name for kind in KINDS]
    measured = instructions(loads, tmp_path)  # all in one: under valgrind half of the time is the start of Python
    assert set(measured) == set(loads)
    check([sentence for load in loads for sentence in excesses_of(load, measured[load])])


def test_every_load_is_bounded_for_both_builds() -> None:
    names = {kind.name for kind in KINDS}
    builds = {name: loads for name, loads in table().items() if name != "interpreter"}
    assert set(builds) == {"python", "cython+modules"}
    assert all(set(loads) == names | set(WAITING) for loads in builds.values())


@pytest.mark.parametrize(
    ("measured", "same_python", "over"),
    [
        ({"functions": 11.4, "opcodes": 115.0}, True, 0),
        ({"functions": 11.6, "opcodes": 116.0}, True, 2),
        ({"functions": 11.6, "opcodes": 116.0}, False, 1),
        ({"recv": 1e9}, True, 0),
    ],
)
def test_only_what_is_bounded_here_and_over_its_bound_is_named(
    measured: dict[str, float], same_python: bool, over: int
) -> None:
    found = excesses("stream", measured, {"functions": 10.0, "opcodes": 100.0}, same_python)
    assert len(found) == over
    assert all("stream" in sentence and "tests.cost.measure" in sentence for sentence in found)
