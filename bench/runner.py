"""Runs scenarios on brokers in turns.

What comes in: brokers, scenarios, rounds. What goes out: outcomes. Rules: 1. within a round every scenario
goes to one broker after the other before the next scenario, and the order of brokers turns around from round
to round, so that a slow minute of the machine does not hit the same one; 2. a process may be faster or slower
for as long as it runs, by where its memory lies for one (Mytkowicz and others, "Producing Wrong Data Without Doing
Anything Obviously Wrong!", 2009), so `fresh` gives each run its own; 3. a run that fails is one failed outcome, the
others go on; 4. every run says what it is before it starts, and what came out.
Not here: starting brokers (`brokers/`), the table (`report.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bench.brokers import Broker
from bench.errors import BenchError
from bench.report import Outcome
from bench.scenarios import Scenario, Setting

Progress = Callable[[str], None]


def run_all(
    brokers: list[Broker],
    scenarios: list[Scenario],
    *,
    rounds: int,
    seconds: float,
    warmup_s: float,
    scale: float = 1.0,
    fresh: bool = False,
    work_dir: str | None = None,
    progress: Progress,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """All outcomes in the order they were run; `on_outcome` is told each at once. `fresh`: every run of a private
    broker has a process of its own."""
    outcomes = []
    total, number = rounds * len(scenarios) * len(brokers), 0
    for round_ in range(1, rounds + 1):
        turns = brokers if round_ % 2 else brokers[::-1]
        for scenario in scenarios:
            for broker in turns:
                number += 1
                progress(f"[{number}/{total}] round {round_}  {scenario.name}  {broker.name} ...")
                reason = why_passed_over(scenario, broker)
                if reason:
                    progress(f"    passed over: {reason}")
                    continue
                setting = Setting(broker.url, broker.pid, warmup_s, seconds, scale, work_dir)
                outcome = _run_one(scenario, broker, round_, setting, fresh)
                progress(f"    {describe(outcome)}")
                outcomes.append(outcome)
                on_outcome(outcome)
    return outcomes


def why_passed_over(scenario: Scenario, broker: Broker) -> str:
    """Why this broker is not asked, empty if it is."""
    if scenario.only and broker.product != scenario.only:
        return f"only {scenario.only} can do it"
    if (scenario.needs_fresh or scenario.restarts) and broker.again is None:
        return "it needs a process of the broker that is the bench's own, which only a private one has"
    if scenario.needs_tls and not broker.tls_url:
        return "no amqps address is known (--tls-url NAME=amqps://..., or trustme for a private broker)"
    return ""


def _run_one(scenario: Scenario, broker: Broker, round_: int, setting: Setting, fresh: bool) -> Outcome:
    try:
        own = fresh and not scenario.needs_tls
        if (scenario.needs_fresh or scenario.restarts or own) and broker.again is not None:
            private = broker.again()
            with private as started:
                result = scenario.run(replace(setting, url=started.url, pid=started.pid, restart=private.restart))
        elif scenario.needs_tls:
            result = scenario.run(replace(setting, url=broker.tls_url))
        else:
            result = scenario.run(setting)
        return Outcome(scenario.name, broker.name, round_, result)
    except (BenchError, OSError) as error:
        return Outcome(scenario.name, broker.name, round_, error=f"{type(error).__name__}: {error}")


def describe(outcome: Outcome) -> str:
    if outcome.result is None:
        return f"FAILED: {outcome.error}"
    figures = ", ".join(f"{figure.name} {figure.value:,.4g} {figure.unit}" for figure in outcome.result.figures)
    shares = ", ".join(f"{role} {share:.0%}" for role, share in outcome.result.generator_cpu.items())
    return f"{figures}  (generator: {shares} of a core)"
