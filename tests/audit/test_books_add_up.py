"""Random commands on a node whose messages are recorded: the log adds up, and says what happened.

`AMQPD_TEST_AUDIT_STEPS` says how many commands in all, `AMQPD_TEST_AUDIT_SEED` which ones. A failure prints the seed
and the shortest list of commands that still fails."""

from __future__ import annotations

import os
import random
from collections import Counter
from time import monotonic

import pytest

from amqpd import KERNEL
from tests.audit.audited import AuditedHarness, AuditedMachine, SampledHarness
from tests.model.commands import THEMES, Theme, draw, run, shortest

STEPS = int(os.environ.get("AMQPD_TEST_AUDIT_STEPS", 6000))
SEED = os.environ.get("AMQPD_TEST_AUDIT_SEED", "1")
LENGTH = 60
"""commands of one history: some incarnations of a node"""
SHORTEN_S = 20.0


class SampledMachine(AuditedMachine):
    harness_class = SampledHarness


def check(theme: Theme, history: int, make: type[AuditedMachine]) -> Counter[str]:
    seed = f"{SEED} {theme.name} {history}"
    commands = draw(theme, random.Random(seed), LENGTH)
    try:
        return run(commands, make)
    except Exception as error:
        until = monotonic() + SHORTEN_S
        few = shortest(commands, lambda: until - monotonic(), make)
        listed = "\n".join(f"    {command!r}," for command in few)
        raise AssertionError(f"seed {seed!r}: {error}\nthe shortest list that fails:\n{listed}") from error


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_every_message_is_accounted_for(theme: Theme) -> None:
    for history in range(STEPS * 3 // 4 // LENGTH // len(THEMES) + 1):
        check(theme, history, AuditedMachine)


@pytest.mark.skipif(KERNEL != "python", reason="changes a constant that a compiled module has inlined")
@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_with_a_sample_a_message_is_recorded_whole_or_not_at_all(
    theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("book", "recorder"):
        monkeypatch.setattr(f"amqpd.audit.{module}.SAMPLED_TOGETHER", 2)
    for history in range(STEPS // 4 // LENGTH // len(THEMES) + 1):
        check(theme, history, SampledMachine)


def test_the_log_of_the_machine_has_every_end_that_a_queue_can_make() -> None:
    """Who adds up what never occurs adds up nothing."""
    seen: Counter[tuple[str, str | None]] = Counter()

    class SeenHarness(AuditedHarness):
        def end_incarnation(self) -> None:
            super().end_incarnation()
            seen.update(self.ledger.seen)

    class SeenMachine(AuditedMachine):
        harness_class = SeenHarness

    for theme in THEMES:
        for history in (0, 1, 4):
            check(theme, history, SeenMachine)
    wanted = {
        *(("acked", None), ("expired", None), ("dropped", None), ("rejected", "rejected"), ("released", None)),
        *(("rejected", "delivery_limit"), ("purged", "purge"), ("purged", "deleted"), ("refused", None)),
        *(("dead_lettered", reason) for reason in ("expired", "maxlen", "rejected", "delivery_limit")),
        *(("standing", "recovered"), ("standing", "stopped"), ("delivered", None), ("requeued", None)),
        *(("published", "dead_letter"), ("published", "delayed"), ("published", None), ("confirmed", None)),
    }
    assert not wanted - set(seen), "never made"
