"""Two million messages, killed in between: `conservation` finds none missing, and names the faults that are planted
then."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.faults.test_audit_kill import FULL, events_of, run_rounds
from tests.faults.test_kill import fault_seed

from . import jobs, plant

MESSAGES_MIN = 2_000_000
KILLS = 4
CONFIRMS_MIN, CONFIRMS_MAX = 340_000, 400_000
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _only_amqpd(only_amqpd: None) -> None: ...


def accepted(books: Path) -> int:
    return sum(row["accepted"] for row in jobs.table(books))


def test_two_million_messages_are_accounted_for_and_planted_faults_are_named(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = make_broker(environment=FULL)
    run_rounds(broker, fault_seed(), KILLS, CONFIRMS_MAX, CONFIRMS_MIN)
    events = events_of(broker)
    done = jobs.run("conservation", "--input", events, "--output", tmp_path / "books")
    assert done.returncode == 0, done.stdout
    messages = accepted(tmp_path / "books" / "books")
    sizes = [path.stat().st_size for path in plant.files(events)]
    print(f"{messages:,} messages in {len(sizes)} files of {sum(sizes) / MIB:.1f} MiB")
    assert messages >= MESSAGES_MIN

    edited = tmp_path / "edited"
    shutil.copytree(events, edited)
    lost = plant.lose(edited)
    twice = plant.acknowledge_twice(edited, lost)
    ghost = plant.deliver_what_was_never_published(edited)
    done = jobs.run("conservation", "--input", edited, "--output", tmp_path / "faults")
    assert done.returncode == 1, done.stdout
    found: dict[str, set[plant.Named]] = {}
    for row in jobs.table(tmp_path / "faults" / "findings"):
        if row["kind"] in ("missing", "ended_twice", "never_routed"):
            found.setdefault(row["kind"], set()).add(plant.Named(row["queue_id"], row["epoch"], row["first"]))
    assert found == {"missing": {lost}, "ended_twice": {twice}, "never_routed": {ghost}}
