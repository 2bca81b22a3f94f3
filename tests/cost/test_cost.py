"""What a message costs does not grow unseen (issue 4, point 5): counts, no times, with bounds in `bounds.toml`.

A machine's load changes nothing here. `python -m tests.cost.measure` prints the present figures.
"""

from __future__ import annotations

import pytest

from tests.cost.bounds import bounds_of, build, excesses, python, table
from tests.cost.counting import count, waiting
from tests.cost.loads import KINDS, WAITING


def check(load: str, measured: dict[str, float]) -> None:
    bounds = bounds_of(load)
    if not bounds:
        pytest.skip(f"not bounded yet for the build '{build()}'")
    found = excesses(load, measured, bounds, python() == table()["interpreter"])
    assert not found, "a message costs more than it did:\n" + "\n".join(found)


@pytest.mark.parametrize("load", [kind.name for kind in KINDS])
def test_a_message_takes_no_more_calls_than_it_did(load: str) -> None:
    check(load, count(load))


@pytest.mark.parametrize("load", WAITING)
def test_a_message_that_waits_keeps_no_more_memory_than_it_did(load: str) -> None:
    check(load, waiting(load))


@pytest.mark.parametrize(
    ("measured", "same_python", "over"),
    [
        ({"functions": 11.4, "opcodes": 114.0}, True, 0),
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
