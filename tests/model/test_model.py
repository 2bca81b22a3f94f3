"""Random commands on a whole node, each held against a plain model of its queues: order,
conservation, limits, and no duplicate without `redelivered`.

`AMQPD_MODEL_STEPS` says how many commands in all, `AMQPD_MODEL_SEED` which ones. A failure prints the seed and the
shortest list of commands that still fails; such a list, given to `run`, is a test of its own."""

from __future__ import annotations

import os
import random
from collections import Counter
from time import monotonic

import pytest

from tests.model.commands import (
    ARGUMENTS,
    COMMANDS,
    OF_CLASSIC,
    OF_POLICIES,
    OF_QUORUM,
    THEMES,
    Theme,
    draw,
    run,
    shortest,
)
from tests.model.found import FOUND

STEPS = int(os.environ.get("AMQPD_MODEL_STEPS", 7_000))
SEED = os.environ.get("AMQPD_MODEL_SEED", "1")
LENGTH = 60
"""commands of one node's incarnation"""
SHORTEN_S = 20.0

WANTED = {
    *("publish", "publish run", "publish with priority", "publish with expiration", "delay", "released", "delete"),
    *("consume", "consume with no_ack", "cancel", "get", "get that waits", "lose", "purge"),
    *("ack", "ack with multiple", "requeue", "requeue with multiple", "reject", "reject with multiple"),
    *("later", "until a deadline", "disk slow", "disk fast", "page out", "paged out", "commit"),
    *("policy", "policy cleared", "policy cleared while messages die", "queue expired"),
    *("restart clean", "restart dirty", "restart with messages", "restart while messages die"),
    *("restart with deadline_ms", "restart with returns"),
    *("confirm ack", "confirm nack", "refused", "dropped"),
    *(
        "dead-lettered expired",
        "dead-lettered maxlen",
        "dead-lettered rejected",
        "dead-lettered delivery_limit",
        "not dead-lettered",
    ),
    *("dead letter waits for its body", "copies written", "small bounds"),
    *(f"policy {name}" for name in OF_POLICIES),
    *(f"classic {name}" for name in ARGUMENTS if name not in OF_QUORUM),
    *(f"quorum {name}" for name in ARGUMENTS if name not in OF_CLASSIC),
}


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_a_node_does_what_the_model_says(theme: Theme) -> None:
    for incarnation in range(STEPS // LENGTH // len(THEMES) + 1):
        seed = f"{SEED} {theme.name} {incarnation}"
        commands = draw(theme, random.Random(seed), LENGTH)
        try:
            run(commands)
        except Exception as error:
            until = monotonic() + SHORTEN_S
            few = shortest(commands, lambda until=until: until - monotonic())  # type: ignore[misc]
            listed = "\n".join(f"    {command!r}," for command in few)
            raise AssertionError(f"seed {seed!r}: {error}\nthe shortest list that fails:\n{listed}") from error


@pytest.mark.parametrize("what", FOUND)
def test_what_long_runs_found(what: str) -> None:
    run(FOUND[what])


@pytest.mark.slow
def test_the_generator_makes_everything_that_it_should() -> None:
    """Who tests what never occurs tests nothing."""
    made: Counter[str] = Counter()
    for theme in THEMES:
        for incarnation in range(20):
            made += run(draw(theme, random.Random(f"{theme.name} {incarnation}"), LENGTH))
    assert not WANTED - set(made), "never made"
    assert made["step"] > LENGTH * 20 * len(THEMES)


def test_each_command_has_a_method_and_a_weight() -> None:
    rng = random.Random(1)
    names = {name for theme in THEMES for name, _ in draw(theme, rng, 1000)}
    assert names == {*COMMANDS, "small_bounds"}
